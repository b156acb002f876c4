"""Evaluating and predicting with a torch model on one worker of many."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import nn

from seamline.core.framework import Part, Recipe
from seamline.core.logical import parts_of
from seamline.core.mean import Mean, Numbers
from seamline.core.shards import Batch, Shard
from seamline.core.world import Alone
from seamline.frameworks.torch import lightning, own_step
from seamline.frameworks.torch.autocast import autocast
from seamline.frameworks.torch.inference.portable import evaluating
from seamline.frameworks.torch.losses import WeighedLoss
from seamline.frameworks.torch.metrics import Meters
from seamline.frameworks.torch.tensors import Placement, call, to_arrays
from seamline.frameworks.torch.world import TorchWorld, choose_device


class Judge(Protocol):
    """Scores in the making, from batches of some of the rows."""

    def judging(self) -> AbstractContextManager[None]: ...

    def see(self, inputs: Any, targets: Any, rows: int) -> None: ...

    def results(self) -> dict[str, float]:
        """Over the rows of all workers."""
        ...


class LossAndMetrics:
    """The loss and the metrics of the model's outputs; without a loss, that of the user's own step if there is one."""

    def __init__(self, recipe: Recipe, model: nn.Module, loss: Any, world: TorchWorld) -> None:
        self._model = model
        self._world = world
        self._loss = None if loss is None else WeighedLoss(loss)
        self._step = recipe.train_step if loss is None else None
        self._metrics = recipe.metrics is not None
        self._meters = Meters(recipe.metrics, world)
        self._numbers = Numbers()

    def judging(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def see(self, inputs: Any, targets: Any, rows: int) -> None:
        if self._step is not None:
            loss, numbers = own_step.read(self._step(self._model, own_step.paired(inputs, targets)), "train_step")
            self._numbers.add({n: own_step.part_of_mean(v, rows) for n, v in {"loss": loss, **numbers}.items()})
        if self._loss is None and not self._metrics:
            return
        outputs = call(self._model, inputs)
        if self._loss is not None:
            counted = self._loss.count(targets, rows)
            if counted:
                self._numbers.add({"loss": self._loss.tally(self._loss(outputs, targets), counted)})
        self._meters.update(outputs, targets, rows)

    def results(self) -> dict[str, float]:
        total = Numbers({"loss": Mean()} if self._loss is not None else {})
        for numbers in self._world.all_gather(self._numbers.on_host()):
            total.add(numbers)
        return {**total.averages(), **self._meters.results()}


def evaluate(recipe: Recipe, model: nn.Module, loss: Any, shard: Shard, world: TorchWorld) -> dict[str, float]:
    """Loss and metrics as one worker would find them on all rows."""
    judge: Judge = (
        lightning.ValidationStep(model, world)
        if lightning.drives(recipe, model)
        else LossAndMetrics(recipe, model, loss, world)
    )
    with judge.judging():
        for batch, inputs, targets in _rows(recipe, model, shard, world):
            with autocast(recipe.tuning, world.device):
                judge.see(inputs, targets, batch.rows)
        return judge.results()


def predict(recipe: Recipe, model: nn.Module, shard: Shard, world: TorchWorld) -> list[Part]:
    return [
        Part(batch.start, batch.rows, to_arrays(outputs)) for batch, outputs in _answers(recipe, model, shard, world)
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


def _answers(recipe: Recipe, model: nn.Module, shard: Shard, world: TorchWorld) -> Iterator[tuple[Batch, Any]]:
    """The model's outputs for every batch of which this worker has rows."""
    for batch, inputs, _ in _rows(recipe, model, shard, world):
        with autocast(recipe.tuning, world.device):
            outputs = call(model, inputs)
        yield batch, outputs


def _rows(recipe: Recipe, model: nn.Module, shard: Shard, world: TorchWorld) -> Iterator[tuple[Batch, Any, Any]]:
    """Every batch of which this worker has rows, for a model that does not learn meanwhile."""
    placement = Placement.of(model, world.device, channels_last=recipe.tuning.channels_last)
    # Not inference mode: what a model caches in its first call must be usable in training later.
    with evaluating(model), torch.no_grad():
        for batch in (batch for part in parts_of(shard) for batch in part.batches(0)):
            if batch.rows:
                yield batch, placement.put(batch.inputs), placement.put(batch.targets)
