"""Evaluating and predicting with a torch model on one worker of many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from seamline.core.framework import Part, Recipe
from seamline.core.logical import parts_of
from seamline.core.mean import Mean
from seamline.core.shards import Batch, Shard
from seamline.core.world import Alone
from seamline.frameworks.torch.autocast import autocast
from seamline.frameworks.torch.inference.portable import evaluating
from seamline.frameworks.torch.losses import WeighedLoss
from seamline.frameworks.torch.metrics import Meters
from seamline.frameworks.torch.tensors import Placement, call, to_arrays
from seamline.frameworks.torch.world import TorchWorld, choose_device


def evaluate(recipe: Recipe, model: nn.Module, loss: Any, shard: Shard, world: TorchWorld) -> dict[str, float]:
    """Loss and metrics as one worker would find them on all rows."""
    weighed = WeighedLoss(loss) if loss is not None else None
    meters = Meters(recipe.metrics, world)
    mean = Mean()
    for batch, outputs, targets in _answers(recipe, model, shard, world):
        if weighed is not None:
            counted = weighed.count(targets, batch.rows)
            if counted:
                mean = mean.plus(weighed.tally(weighed(outputs, targets), counted))
        meters.update(outputs, targets, batch.rows)
    scores = {}
    if weighed is not None:
        scores["loss"] = Mean(world.sum(float(mean.total)), world.sum(mean.count)).value
    return {**scores, **meters.results()}


def predict(recipe: Recipe, model: nn.Module, shard: Shard, world: TorchWorld) -> list[Part]:
    return [
        Part(batch.start, batch.rows, to_arrays(outputs)) for batch, outputs, _ in _answers(recipe, model, shard, world)
    ]


def answering(recipe: Recipe, model: nn.Module) -> Callable[[Any], Any]:
    """A function from inputs to arrays, on the CPU or the first GPU that the recipe wishes for."""
    device = choose_device(Alone(), recipe.tuning.device)
    model = model.to(device).eval()
    placement = Placement.of(model, device, channels_last=recipe.tuning.channels_last)

    def answer(inputs: Any) -> Any:
        with torch.no_grad(), autocast(recipe.tuning, device):
            return to_arrays(call(model, placement.put(inputs)))

    return answer


def _answers(recipe: Recipe, model: nn.Module, shard: Shard, world: TorchWorld) -> Iterator[tuple[Batch, Any, Any]]:
    """The model's outputs for every batch of which this worker has rows."""
    placement = Placement.of(model, world.device, channels_last=recipe.tuning.channels_last)
    # Not inference mode: what a model caches in its first call must be usable in training later.
    with evaluating(model), torch.no_grad():
        for batch in (batch for part in parts_of(shard) for batch in part.batches(0)):
            if batch.rows:
                with autocast(recipe.tuning, world.device):
                    outputs = call(model, placement.put(batch.inputs))
                yield batch, outputs, placement.put(batch.targets)
