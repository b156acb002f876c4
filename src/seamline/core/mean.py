"""A mean in the making: what was added up, and what to divide it by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mean:
    """Totals that can be added over batches and over workers; the total may live on a device."""

    total: Any = 0.0
    count: float = 0.0

    def plus(self, other: Mean) -> Mean:
        return Mean(self.total + other.total, self.count + other.count)

    @property
    def value(self) -> float:
        return float(self.total) / self.count if self.count else float("nan")

    def on_host(self) -> Mean:
        return Mean(float(self.total), float(self.count))
