"""What a step minimises: a loss of the model's outputs, or whatever the user's own step computes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import nn

from seamline.core import tree
from seamline.core.framework import Job, Recipe
from seamline.core.mean import Mean
from seamline.core.run import Run
from seamline.frameworks.torch import lightning
from seamline.frameworks.torch.build import Built
from seamline.frameworks.torch.losses import WeighedLoss
from seamline.frameworks.torch.own_step import OwnStep, nothing
from seamline.frameworks.torch.row_weights import RowWeighedLoss
from seamline.frameworks.torch.tensors import call
from seamline.frameworks.torch.world import TorchWorld


class Objective(Protocol):
    """The loss of some rows with the knowledge of how much they count, so that workers can be averaged."""

    called: nn.Module
    """What is called with a batch, and has to be wrapped by whoever averages gradients."""
    sums: bool
    reports: bool
    """Whether there may be other numbers than the loss."""

    def during(self, run: Run) -> AbstractContextManager[None]:
        """From the first step of a run to its last."""
        ...

    def counts_unevenly(self, targets: Any) -> bool: ...

    def count(self, targets: Any, rows: float) -> float: ...

    def compute(self, called: nn.Module, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        """The loss; of rows that count for nothing, a zero that reaches the same parameters."""
        ...

    def tally(self, value: torch.Tensor, counted: float) -> Mean:
        """A loss that was computed, and has led to gradients, as a part of a mean over rows."""
        ...

    def numbers(self) -> dict[str, Mean]:
        """What else was to be reported since the last time somebody asked."""
        ...

    def begin_epoch(self) -> None: ...

    def end_epoch(self, world: TorchWorld) -> dict[str, float]:
        """What only the end of an epoch tells; the same on every worker."""
        ...


class Supervised:
    """A loss function of the model's outputs and the targets."""

    reports = False

    def __init__(self, model: nn.Module, loss: WeighedLoss) -> None:
        self.called = model
        self.sums = loss.sums
        self.counts_unevenly = loss.counts_unevenly
        self.count = loss.count
        self.tally = loss.tally
        self._loss = loss

    def during(self, run: Run) -> AbstractContextManager[None]:
        return nullcontext()

    def compute(self, called: nn.Module, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        outputs = call(called, inputs)
        return self._loss(outputs, targets) if counted else nothing(tree.leaves(outputs))

    def numbers(self) -> dict[str, Mean]:
        return {}

    def begin_epoch(self) -> None: ...

    def end_epoch(self, world: TorchWorld) -> dict[str, float]:
        return {}


def objective_of(recipe: Recipe, built: Built, job: Job, trainer: lightning.StandIn) -> Objective:
    if lightning.drives(recipe, built.model):
        return lightning.TrainingStep(built.model, trainer)
    if recipe.train_step is not None:
        return OwnStep(built.model, recipe.train_step)
    if job.weighting is not None:
        return Supervised(built.model, RowWeighedLoss(built.loss, job.weighting))
    return Supervised(built.model, WeighedLoss(built.loss))
