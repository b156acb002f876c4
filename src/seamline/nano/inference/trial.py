"""One plan, tried: how fast, how good, how near to the original; or why it could not be tried."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seamline.core.runtime import Plan

Status = Literal["original", "good", "too slow", "failed"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Bursts of calls, taken in turns with bursts of the original; each is a list of seconds."""

    plan: list[list[float]]
    original: list[list[float]]

    @property
    def latency_ms(self) -> float:
        return 1000 * statistics.median(call for burst in self.plan for call in burst)

    @property
    def p95_ms(self) -> float:
        calls = sorted(call for burst in self.plan for call in burst)
        return 1000 * calls[int(0.95 * (len(calls) - 1))]

    @property
    def speedup(self) -> float:
        """The median over turns of the original's best call divided by the plan's best call in the same turn."""
        return statistics.median(min(o) / min(p) for o, p in zip(self.original, self.plan, strict=True))

    @property
    def noisy(self) -> bool:
        """Whether best calls and median calls tell different stories."""
        turns = zip(self.original, self.plan, strict=True)
        by_median = statistics.median(statistics.median(o) / statistics.median(p) for o, p in turns)
        return not 0.75 < by_median / self.speedup < 1.33


@dataclass(frozen=True, slots=True)
class Trial:
    """A row of the report."""

    plan: Plan
    status: Status
    timing: Timing | None = None
    score: float | None = None
    distance: float | None = None
    size_mb: float | None = None
    reason: str | None = None
    compared: bool = False
    """Whether it was measured again beside the other fast ones."""
    folder: Path | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return "original" if self.status == "original" else self.plan.name

    @property
    def speedup(self) -> float | None:
        return 1.0 if self.status == "original" else self.timing.speedup if self.timing else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "plan": self.name,
            "status": self.status,
            "latency_ms": self.timing.latency_ms if self.timing else None,
            "p95_ms": self.timing.p95_ms if self.timing else None,
            "speedup": self.speedup,
            "score": self.score,
            "distance": self.distance,
            "size_mb": self.size_mb,
            "noisy": self.timing.noisy if self.timing else None,
            "reason": self.reason,
        }
