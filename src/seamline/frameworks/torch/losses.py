"""How much each worker's loss counts, so that averages over workers are those of the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class WeighedLoss:
    """A loss function with the knowledge of what it averages over."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self.reduction: str = getattr(loss, "reduction", "mean")
        self._counts_classes = isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)) and self.reduction == "mean"

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        value: torch.Tensor = self._loss(outputs) if targets is None else self._loss(outputs, targets)
        return value if value.ndim == 0 else value.mean()

    def counts_unevenly(self, targets: Any) -> bool:
        """Whether rows count differently, so that workers have to tell each other how much theirs count.

        True for classification losses with class weights, or with targets that may be ignored (padding).
        """
        if not self._counts_classes or not isinstance(targets, torch.Tensor) or targets.is_floating_point():
            return False
        return self._loss.weight is not None or self._loss.ignore_index >= 0 or targets.ndim > 1

    def count(self, targets: Any, rows: float) -> float:
        """What the loss divides by: rows, or the weights of the classes that are not ignored."""
        if rows == 0 or not self.counts_unevenly(targets):
            return float(rows)
        kept = targets[targets != self._loss.ignore_index]
        return float(kept.numel() if self._loss.weight is None else self._loss.weight[kept].sum())
