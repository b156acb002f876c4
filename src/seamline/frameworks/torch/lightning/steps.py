"""``training_step`` and ``validation_step`` of a LightningModule in the one training loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from seamline.core.mean import Mean
from seamline.core.run import Run
from seamline.frameworks.torch.lightning.log import LogBook, metric_states, put_back
from seamline.frameworks.torch.lightning.module import as_item, attached, numbered, overrides
from seamline.frameworks.torch.lightning.trainer import StandIn
from seamline.frameworks.torch.own_step import OwnStep
from seamline.frameworks.torch.world import TorchWorld


class TrainingStep(OwnStep):
    """``training_step``, with what it logs."""

    name = "training_step"

    def __init__(self, module: Any, trainer: StandIn) -> None:
        super().__init__(module, self._step)
        self._module = module
        self._trainer = trainer
        self._book = LogBook()
        self._training_step = numbered(module.training_step)
        self._seen: Any = None
        """What metrics had seen before a computation that did not lead to gradients yet."""
        self._first = True

    def _step(self, module: nn.Module, batch: Any) -> Any:
        assert self._trainer.run is not None
        returned = self._training_step(batch, self._trainer.run.epoch_step)
        return returned["loss"] if isinstance(returned, dict) and "loss" in returned else returned

    @contextlib.contextmanager
    def during(self, run: Run) -> Iterator[None]:
        self._trainer.run = run
        with attached(self._module, self._trainer, self._book):
            self._module.on_fit_start()
            self._module.on_train_start()
            yield
            self._module.on_train_end()
            self._module.on_fit_end()

    def batch(self, inputs: Any, targets: Any) -> Any:
        return as_item(inputs, targets)

    def compute(self, called: nn.Module, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        if self._seen is not None:  # the first computation of all may be repeated
            put_back(self._seen)
        self._seen = metric_states(self._module) if self._first or not counted else None
        self._book.open()
        loss = super().compute(called, inputs, targets, counted)
        self._latest = self._book.close()
        if not counted:
            put_back(self._seen)
            self._seen = None
        return loss

    def tally(self, value: torch.Tensor, counted: float) -> Mean:
        self._seen, self._first = None, False
        return super().tally(value, counted)

    def begin_epoch(self) -> None:
        super().begin_epoch()
        self._module.on_train_epoch_start()

    def end_epoch(self, world: TorchWorld) -> dict[str, float]:
        self._book.open()
        self._module.on_train_epoch_end()
        return self._book.results(world)


class ValidationStep:
    """``validation_step`` over the batches of all workers; the scores are what it logs, under its own names."""

    def __init__(self, module: Any, world: TorchWorld) -> None:
        if not overrides(module, "validation_step"):
            raise ValueError(f"{type(module).__name__} has no validation_step; write one that calls self.log")
        self._module = module
        self._world = world
        self._book = LogBook()
        self._step = numbered(module.validation_step)
        self._batches = 0

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        with attached(self._module, self._module._trainer or StandIn(self._world), self._book):
            self._module.on_validation_start()
            self._module.on_validation_epoch_start()
            yield

    def see(self, inputs: Any, targets: Any, rows: int) -> None:
        self._book.open()
        self._step(as_item(inputs, targets), self._batches)
        self._book.keep(rows)
        self._batches += 1

    def results(self) -> dict[str, float]:
        self._book.open()
        self._module.on_validation_epoch_end()
        self._module.on_validation_end()
        return self._book.results(self._world)
