"""Training whose weights are the same bits whatever the number of workers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

from seamline.core import rng
from seamline.core.framework import Recipe
from seamline.core.logical import LogicalBatch, LogicalShard
from seamline.core.mean import Mean
from seamline.core.shards import Batch
from seamline.frameworks.torch.build import Built
from seamline.frameworks.torch.canonical import CanonicalSum, flattened
from seamline.frameworks.torch.objective import Objective
from seamline.frameworks.torch.randomness import seed_everything
from seamline.frameworks.torch.replica import TorchReplica
from seamline.frameworks.torch.step import TrainingStep
from seamline.frameworks.torch.tensors import pieces
from seamline.frameworks.torch.world import TorchWorld


@contextlib.contextmanager
def one_way_to_compute() -> Iterator[None]:
    """One thread and algorithms without a choice: how many threads share a sum changes its bits."""
    threads, strict = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS has a choice, and torch refuses it
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(strict, warn_only=lenient)


class ReproducibleStep(TrainingStep):
    """One batch, computed in the parts of the logical workers and added up in one order.

    Each part starts from the same buffers and has random numbers of its own. What the parts have changed in the
    buffers (running statistics) is averaged by their rows.
    """

    def __init__(
        self,
        recipe: Recipe,
        built: Built,
        objective: Objective,
        replica: TorchReplica,
        world: TorchWorld,
        shard: LogicalShard,
        seed: int,
    ) -> None:
        super().__init__(recipe, built, objective, replica, world, seed)
        self._numbers = shard.numbers
        self._sum = CanonicalSum(shard.count, world)
        self._parameters = [p for p in built.model.parameters() if p.requires_grad]
        self._buffers = [b for b in built.model.buffers() if b.numel()]
        wide = any(p.dtype == torch.float64 for p in self._parameters)
        self._dtype = torch.float64 if wide else torch.float32

    def refresh(self) -> None:
        """Follow the user who has frozen or thawed a part of the model."""
        super().refresh()
        self._parameters = [p for p in self._built.model.parameters() if p.requires_grad]

    def compute(self, batch: Batch, step: int) -> Mean:
        assert isinstance(batch, LogicalBatch)
        placed = [(part, self._placement.put(part.inputs), self._placement.put(part.targets)) for part in batch.parts]
        everywhere = self._everywhere(placed, batch.batch_rows)
        before = [buffer.clone() for buffer in self._buffers]
        tally = Mean()
        for number, (part, inputs, targets) in zip(self._numbers, placed, strict=True):
            seed_everything(rng.derive(self._seed, step, number))
            for buffer, start in zip(self._buffers, before, strict=True):
                buffer.copy_(start)
            tally = tally.plus(self._compute(part, inputs, targets, everywhere))
            self._sum.add(number, self._leaf(before, number, part))
        self._take(self._sum.result(), before)
        return tally

    def _everywhere(self, placed: list[tuple[Batch, Any, Any]], rows: int) -> float:
        """What the rows of the whole batch count, added up in the order of the logical workers."""
        if not self._loss.counts_unevenly(placed[0][2]):
            return float(rows)
        ours = [self._loss.count(targets, part.rows) for part, _, targets in placed]
        return sum((each for some in self._world.all_gather(ours) for each in some), 0.0)

    def _compute(self, part: Batch, inputs: Any, targets: Any, everywhere: float) -> Mean:
        self._built.optimizer.zero_grad(set_to_none=True)
        tally = Mean()
        for some_inputs, some_targets, portion in pieces(inputs, targets, self._tuning.accumulate):
            counted = self._loss.count(some_targets, part.rows * portion)
            loss = self._forward(some_inputs, some_targets, counted)
            weight = 1.0 if self._loss.sums else counted / everywhere if everywhere else 0.0
            (loss * weight).backward()  # type: ignore[no-untyped-call]
            if counted:
                tally = tally.plus(self._loss.tally(loss, counted))
        return tally

    def _leaf(self, before: list[torch.Tensor], number: int, part: Batch) -> torch.Tensor:
        """Gradients, which parameters have one, and what has become of the buffers, as one vector."""
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]
        used = torch.tensor([float(p.grad is not None) for p in self._parameters], device=self._world.device)
        weight = part.rows / part.batch_rows
        changes = [
            (buffer - start) * weight if buffer.is_floating_point() else (buffer.long() - start.long()) * (number == 0)
            for buffer, start in zip(self._buffers, before, strict=True)
        ]
        return flattened([*grads, used, *changes], self._dtype)

    def _take(self, total: torch.Tensor, before: list[torch.Tensor]) -> None:
        sizes = [p.numel() for p in self._parameters] + [len(self._parameters)] + [b.numel() for b in self._buffers]
        vectors = list(torch.split(total, sizes))
        used = vectors[len(self._parameters)].tolist()
        for parameter, vector, has in zip(self._parameters, vectors, used, strict=False):
            parameter.grad = vector.view_as(parameter).to(parameter.dtype) if has else None
        with torch.no_grad():
            changes = vectors[len(self._parameters) + 1 :]
            for buffer, start, change in zip(self._buffers, before, changes, strict=True):
                buffer.copy_(start + change.view_as(buffer).to(buffer.dtype))
