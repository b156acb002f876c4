"""What Seamline asks of a framework, answered for torch."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

from torch import nn
from torch.optim import Optimizer

from seamline.core.framework import Feed, Job, Outcome, Part, Recipe, State
from seamline.core.shards import Shard
from seamline.core.tuning import Tuning
from seamline.core.world import World
from seamline.frameworks.torch import build, loop, metrics, scoring
from seamline.frameworks.torch import state as files
from seamline.frameworks.torch.trainee import load_model
from seamline.frameworks.torch.world import TorchWorld, join


class TorchFramework:
    """Trains an ``nn.Module`` on every worker, averaging gradients each step."""

    name = "torch"

    def owns(self, model: object) -> bool:
        return isinstance(model, nn.Module)

    def check(self, recipe: Recipe, *, to_train: bool) -> None:
        build.check(recipe, to_train=to_train)
        metrics.named(recipe.metrics)

    def join(self, world: World, tuning: Tuning) -> AbstractContextManager[World]:
        return join(world, tuning.device)

    def fit(self, recipe: Recipe, feed: Feed, job: Job, world: World) -> Outcome:
        return loop.fit(recipe, feed, job, cast("TorchWorld", world))

    def evaluate(self, recipe: Recipe, shard: Shard, world: World) -> dict[str, float]:
        ours = cast("TorchWorld", world)
        model = self.model(recipe).to(ours.device)
        return scoring.evaluate(recipe, model, build.build_loss(recipe), shard, ours)

    def predict(self, recipe: Recipe, shard: Shard, world: World) -> list[Part]:
        ours = cast("TorchWorld", world)
        return scoring.predict(recipe, self.model(recipe).to(ours.device), shard, ours)

    def model(self, recipe: Recipe) -> nn.Module:
        model = build.build_model(recipe)
        if recipe.start is not None:
            load_model(model, recipe.start)
        return model

    def take_home(self, recipe: Recipe, state: State) -> None:
        if isinstance(recipe.model, nn.Module):
            load_model(recipe.model, state)
        if isinstance(recipe.optimizer, Optimizer) and state.get("optimizer"):
            recipe.optimizer.load_state_dict(state["optimizer"])
        if hasattr(recipe.scheduler, "load_state_dict") and state.get("scheduler"):
            recipe.scheduler.load_state_dict(state["scheduler"])

    def write(self, state: State, folder: Path) -> None:
        files.write(state, folder)

    def read(self, folder: Path) -> State:
        return files.read(folder)
