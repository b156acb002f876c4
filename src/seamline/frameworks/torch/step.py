"""One step of training: what becomes of the weights when a batch has come."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from seamline.core import rng
from seamline.core.framework import Recipe
from seamline.core.mean import Mean
from seamline.core.shards import Batch, Unpaired
from seamline.frameworks.torch.autocast import autocast
from seamline.frameworks.torch.build import Built
from seamline.frameworks.torch.frozen.acceleration import Probe
from seamline.frameworks.torch.objective import Objective
from seamline.frameworks.torch.randomness import seed_everything
from seamline.frameworks.torch.replica import TorchReplica
from seamline.frameworks.torch.tensors import Placement, call, pieces
from seamline.frameworks.torch.world import TorchWorld


class TrainingStep:
    """One batch: forward, backward, clip, update."""

    def __init__(
        self,
        recipe: Recipe,
        built: Built,
        objective: Objective,
        replica: TorchReplica,
        world: TorchWorld,
        seed: int,
    ) -> None:
        self._tuning = recipe.tuning
        self._built = built
        self._replica = replica
        self._world = world
        self._seed = seed
        self._loss = objective
        self._placement = Placement.of(built.model, world.device, channels_last=recipe.tuning.channels_last)

    @property
    def probe(self) -> Probe:
        """How this step calls the model, for those who look for a part of it that could be faster."""

        def run(pair: Any) -> Any:
            with autocast(self._tuning, self._world.device):
                return call(self._built.model, pair[0])

        def put(pair: Any) -> Any:
            inputs, targets = self._placement.put(pair)
            return tuple(inputs) if isinstance(inputs, Unpaired) else inputs, targets

        return Probe(self._built.model, run, put, self._tuning)

    def __call__(self, batch: Batch, step: int) -> tuple[Mean, torch.Tensor | None, list[dict[str, Mean]]]:
        """Update the weights; returns this worker's part of the batch's mean loss, and everybody's entry in the books.

        The last are other numbers that each worker reports. ``step`` counts those before. Weights change only when
        gradients, buffers and books have reached this worker, so whoever has done a step knows all of it.
        """
        loss = self.compute(batch, step)
        books = self._replica.entered(batch.start, batch.rows, loss)
        numbers = self._everybodys(self._loss.numbers())
        self._clip()
        self._built.optimizer.step()
        self._built.schedule.after_step()
        if self._built.average is not None:
            self._built.average.update()
        return loss, books, numbers

    def _everybodys(self, numbers: dict[str, Mean]) -> list[dict[str, Mean]]:
        if not self._loss.reports or self._world.size == 1:
            return [numbers]
        return self._world.all_gather({name: mean.on_host() for name, mean in numbers.items()})

    def refresh(self) -> None:
        """Follow the user who has frozen or thawed a part of the model."""
        self._replica.refresh()
        if self._built.average is not None:
            self._built.average.refresh()

    def compute(self, batch: Batch, step: int) -> Mean:
        """The gradients of the whole batch, on every worker."""
        seed_everything(rng.derive(self._seed, step, self._world.rank))
        inputs, targets = self._placement.put(batch.inputs), self._placement.put(batch.targets)
        self._built.optimizer.zero_grad(set_to_none=True)
        return self._backward(batch, inputs, targets)

    def end_epoch(self, logs: dict[str, float]) -> None:
        self._built.schedule.after_epoch(logs)

    def _backward(self, batch: Batch, inputs: Any, targets: Any) -> Mean:
        uneven = self._loss.counts_unevenly(targets)
        here = self._loss.count(targets, batch.rows)
        everywhere = self._world.sum(here) if uneven else float(batch.batch_rows)
        parts = list(pieces(inputs, targets, self._tuning.accumulate))
        tally = Mean()
        for number, (some_inputs, some_targets, share) in enumerate(parts, start=1):
            counted = self._loss.count(some_targets, batch.rows * share)
            with contextlib.nullcontext() if number == len(parts) else self._replica.holding_back():
                loss = self._forward(some_inputs, some_targets, counted)
                (loss * self._weight(counted, everywhere)).backward()  # type: ignore[no-untyped-call]
            if counted:
                tally = tally.plus(self._loss.tally(loss, counted))
        return tally

    def _forward(self, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        """The loss; rows that count for nothing run through the model too, to stay in step with the others."""

        def compute() -> torch.Tensor:
            with autocast(self._tuning, self._world.device), _normalising_as_learned(self._built.model, not counted):
                return self._loss.compute(self._replica.model, inputs, targets, counted)

        return self._replica.once_checked(compute)

    def _weight(self, counted: float, everywhere: float) -> float:
        """Averaging over workers divides by their number; a row must weigh what it does on one worker."""
        if self._loss.sums:
            return float(self._world.size)
        return counted * self._world.size / everywhere if everywhere else 0.0

    def _clip(self) -> None:
        parameters = [p for p in self._built.model.parameters() if p.grad is not None]
        if self._tuning.clip_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self._tuning.clip_value)
        if self._tuning.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self._tuning.clip_norm)


@contextlib.contextmanager
def _normalising_as_learned(model: torch.nn.Module, needed: bool) -> Iterator[None]:
    """Let batch normalisation use its running statistics, for a row that must leave no trace."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training] if needed else []
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()
