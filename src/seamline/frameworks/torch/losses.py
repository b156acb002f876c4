"""How much each worker's loss counts, so that averages over workers are those of the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from seamline.core.mean import Mean


class WeighedLoss:
    """A loss function with the knowledge of what it averages over."""

    def __init__(self, loss: Any) -> None:
        self._loss = loss
        self.sums: bool = getattr(loss, "reduction", "mean") == "sum"
        self._classifies = isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss))

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        if targets is None:
            return self._of_outputs_alone(outputs)
        if self._classifies and _is_integer(targets):
            targets = targets.long()
        value: torch.Tensor = self._loss(outputs, targets)
        return value if value.ndim == 0 else value.mean()

    def _of_outputs_alone(self, outputs: Any) -> torch.Tensor:
        try:
            value: torch.Tensor = self._loss(outputs)
        except TypeError as error:
            raise TypeError(
                f"the data has no targets, and the loss wants them ({error}); "
                "give a tuple (x, y), for a list means several inputs"
            ) from error
        return value if value.ndim == 0 else value.mean()

    def counts_unevenly(self, targets: Any) -> bool:
        """Whether rows may count differently, so that workers have to tell each other how much theirs count.

        True for classification losses: classes have weights, and targets may be ignored.
        """
        return self._classifies and not self.sums and _is_integer(targets)

    def count(self, targets: Any, rows: float) -> float:
        """What the loss divides by: rows, or the weights of the classes that are not ignored."""
        if rows == 0 or not self.counts_unevenly(targets):
            return float(rows)
        kept = targets[targets != self._loss.ignore_index]
        return float(kept.numel() if self._loss.weight is None else self._loss.weight[kept].sum())

    def tally(self, value: torch.Tensor, counted: float) -> Mean:
        """A value of this loss as a part of a mean over rows."""
        value = value.detach()
        total: Any = value if self.sums else value * counted
        return Mean(float(total) if value.device.type == "cpu" else total, counted)


def _is_integer(targets: Any) -> bool:
    return isinstance(targets, torch.Tensor) and not targets.is_floating_point() and not targets.is_complex()
