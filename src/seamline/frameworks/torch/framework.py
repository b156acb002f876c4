"""What Seamline asks of a framework, answered for torch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from seamline.core.framework import Feed, Held, Job, Outcome, Part, Recipe, State
from seamline.core.shards import Shard
from seamline.core.tuning import Tuning
from seamline.core.world import World
from seamline.frameworks.torch import build, export, loop, metrics, scoring, travel
from seamline.frameworks.torch import state as files
from seamline.frameworks.torch.randomness import random_numbers_restored, seed_everything
from seamline.frameworks.torch.trainee import AVERAGED, load_model, on_cpu
from seamline.frameworks.torch.world import TorchWorld, join

travel.register()


class TorchFramework:
    """Trains an ``nn.Module`` on every worker, averaging gradients each step."""

    name = "torch"

    def owns(self, model: object) -> bool:
        return isinstance(model, nn.Module)

    def check(self, recipe: Recipe, *, to_train: bool) -> None:
        build.check(recipe, to_train=to_train)
        metrics.named(recipe.metrics)
        if to_train:
            build.expect_optimizers()

    def join(self, world: World, tuning: Tuning, patience_s: float | None) -> AbstractContextManager[World]:
        return join(world, tuning.device, patience_s)

    def fit(self, recipe: Recipe, feed: Feed, job: Job, world: World, held: Held) -> Outcome:
        return loop.fit(recipe, feed, job, cast("TorchWorld", world), held)

    def evaluate(self, recipe: Recipe, shard: Shard, world: World) -> dict[str, float]:
        ours = cast("TorchWorld", world)
        with random_numbers_restored():
            model = self.model(recipe).to(ours.device)
            return scoring.evaluate(recipe, model, build.build_loss(recipe, ours.device), shard, ours)

    def predict(self, recipe: Recipe, shard: Shard, world: World) -> list[Part]:
        ours = cast("TorchWorld", world)
        with random_numbers_restored():
            return scoring.predict(recipe, self.model(recipe).to(ours.device), shard, ours)

    def answering(self, recipe: Recipe, threads: int | None) -> Callable[[Any], Any]:
        if threads is not None:
            torch.set_num_threads(threads)
        return scoring.answering(recipe, self.model(recipe))

    def model(self, recipe: Recipe) -> nn.Module:
        with random_numbers_restored():
            seed_everything(0)  # before the first fit, every worker's function makes the same model
            model = build.build_model(recipe)
        if recipe.start is not None:
            load_model(model, recipe.start)
        return model

    def to_onnx(self, recipe: Recipe, sample: Any, path: Path) -> None:
        export.to_onnx(self.model(recipe), sample, path)

    def current(self, recipe: Recipe, state: State) -> State:
        held = {"model": recipe.model, "optimizer": recipe.optimizer, "scheduler": recipe.scheduler}
        live = {n: on_cpu(v.state_dict()) for n, v in held.items() if _is_instance(v) and state.get(n) is not None}
        if AVERAGED in state and "model" in live and not _equal(live["model"], state["model"]):
            # The user has changed what was averaged, so that is where to go on.
            return {**{name: value for name, value in state.items() if name != AVERAGED}, **live}
        return {**state, **live}

    def take_home(self, recipe: Recipe, state: State) -> None:
        if _is_instance(recipe.model):
            load_model(recipe.model, state)
        if _is_instance(recipe.optimizer) and state.get("optimizer"):
            recipe.optimizer.load_state_dict(state["optimizer"])
        if _is_instance(recipe.scheduler) and state.get("scheduler"):
            recipe.scheduler.load_state_dict(state["scheduler"])

    def write(self, state: State, folder: Path) -> None:
        files.write(state, folder)

    def read(self, folder: Path) -> State:
        return files.read(folder)


def _equal(ours: State, theirs: State) -> bool:
    return all(not isinstance(value, torch.Tensor) or torch.equal(value, theirs[name]) for name, value in ours.items())


def _is_instance(value: object) -> bool:
    """A model, optimizer or scheduler that the user made, rather than a function or class that makes one."""
    return hasattr(value, "state_dict") and not isinstance(value, type)
