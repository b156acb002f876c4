"""Rows that count differently in training: by their class, by a weight of their own, or by both."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch

from seamline.core.errors import DataError
from seamline.core.framework import Weighting
from seamline.core.shards import Weighed
from seamline.frameworks.torch.losses import WeighedLoss


class RowWeighedLoss(WeighedLoss):
    """The mean of the rows' losses by their weights: what the weights of the whole batch add up to divides it.

    So it is what ``CrossEntropyLoss(weight=...)`` computes, for any loss that can be had row by row.
    """

    def __init__(self, loss: Any, weighting: Weighting) -> None:
        super().__init__(loss)
        self._each = _row_by_row(loss)
        self._named = getattr(loss, "__name__", type(loss).__name__)
        self._classes = None
        if weighting.classes is not None:
            known = sorted(weighting.classes.items())
            self._classes = torch.tensor([name for name, _ in known])
            self._weights = torch.tensor([weight for _, weight in known])

    def __call__(self, outputs: Any, targets: Any) -> torch.Tensor:
        plain, weights = self._apart(targets)
        if self._classifies and not plain.is_floating_point():
            plain = plain.long()
        values = self._each(outputs, plain)
        if not isinstance(values, torch.Tensor) or values.ndim == 0 or len(values) != len(weights):
            shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
            raise TypeError(
                f"weights need the loss of each of {len(weights)} rows, and {self._named} gave {shape}; give a loss of "
                "torch, or a function that takes reduction='none' or returns one number for each row"
            )
        if self.sums:
            return (_beside(weights, values) * values).sum()
        if super().counts_unevenly(plain):
            return (_beside(weights, values) * values).sum() / self._divisor(plain, weights)
        return (weights * values.flatten(1).mean(1) if values.ndim > 1 else weights * values).sum() / weights.sum()

    def counts_unevenly(self, targets: Any) -> bool:
        return not self.sums

    def count(self, targets: Any, rows: float) -> float:
        if rows == 0:
            return 0.0
        plain, weights = self._apart(targets)
        if self.sums:
            return float(rows)
        return float(self._divisor(plain, weights) if super().counts_unevenly(plain) else weights.double().sum())

    def _divisor(self, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What the targets that are not ignored weigh, with the weights that the loss itself has for classes."""
        kept = targets != self._loss.ignore_index
        each = kept.to(weights.dtype)
        if self._loss.weight is not None:
            each = each * self._loss.weight[torch.where(kept, targets, 0).long()]
        total: torch.Tensor = (_beside(weights, each) * each).double().sum()
        return total

    def _apart(self, targets: Any) -> tuple[Any, torch.Tensor]:
        """The targets as they would be without weights, and what each row weighs."""
        plain, weights = targets if isinstance(targets, Weighed) else (targets, None)
        if weights is not None:
            weights = weights.reshape(-1).to(torch.get_default_dtype())
            if not bool(((weights >= 0) & torch.isfinite(weights)).all()):
                raise DataError("a row has a negative weight, or one that is no number; weights are 0 or more")
        if self._classes is not None:
            by_class = self._of_classes(plain)
            weights = by_class if weights is None else weights * by_class
        assert weights is not None
        return plain, weights

    def _of_classes(self, targets: Any) -> torch.Tensor:
        if not isinstance(targets, torch.Tensor) or targets.numel() != len(targets):
            shape = tuple(targets.shape) if isinstance(targets, torch.Tensor) else type(targets).__name__
            raise DataError(f"class_weight needs one class for each row, and the targets are {shape}")
        assert self._classes is not None
        found = targets.reshape(-1, 1) == self._classes.to(targets.device)
        unknown = ~found.any(1)
        if bool(unknown.any()):
            there = ", ".join(map(str, self._classes.tolist()))
            raise DataError(
                f"class {targets.reshape(-1)[unknown][0].item()} has no weight; class_weight names {there}: "
                "give every class one"
            )
        return self._weights.to(targets.device)[found.int().argmax(1)]


def _row_by_row(loss: Any) -> Any:
    """The same loss without its reduction, where it has one; else the loss itself, which may have none."""
    if isinstance(getattr(loss, "reduction", None), str):
        alone = copy.copy(loss)
        alone.reduction = "none"
        return alone
    try:
        reduces = "reduction" in inspect.signature(loss).parameters
    except (TypeError, ValueError):
        reduces = False
    return (lambda outputs, targets: loss(outputs, targets, reduction="none")) if reduces else loss


def _beside(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The weights of rows in a shape that multiplies values of these rows."""
    return weights.reshape(-1, *[1] * (values.ndim - 1))
