"""A mean in the making: what was added up, and what to divide it by."""

from __future__ import annotations

from collections.abc import Mapping
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


class Numbers(dict[str, Mean]):
    """Means in the making, by name."""

    def add(self, others: Mapping[str, Mean]) -> None:
        for name, mean in others.items():
            self[name] = self.get(name, Mean()).plus(mean)

    def on_host(self) -> dict[str, Mean]:
        return {name: mean.on_host() for name, mean in self.items()}

    def averages(self) -> dict[str, float]:
        return {name: mean.value for name, mean in self.items()}
