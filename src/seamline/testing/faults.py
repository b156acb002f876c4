"""Faults for ``Estimator.fit(..., faults=[...])``: does a program survive what clusters do to it?

estimator.fit(data, workers=2, checkpoint=10, faults=[Kill(rank=1, step=20)])
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import get_args

from seamline.core.fault import Moment, Phase

__all__ = ["Kill", "Phase", "Raise", "SlowDown", "Stall"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _At:
    """At which moments: of this rank (``None``: of each), in this phase, after so many steps, on this attempt.

    ``step=None`` is every step. ``attempt`` counts the starts of a run from 0 on; ``None`` is each of them.
    """

    rank: int | None = None
    step: int | None = None
    phase: Phase = "step"
    attempt: int | None = 0

    def __post_init__(self) -> None:
        if self.phase not in get_args(Phase):
            raise ValueError(f"no phase {self.phase!r}; there are {', '.join(map(repr, get_args(Phase)))}")

    def is_now(self, moment: Moment) -> bool:
        return (
            moment.phase == self.phase
            and self.rank in (None, moment.rank)
            and self.step in (None, moment.step)
            and self.attempt in (None, moment.attempt)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(_At):
    """The worker's process is killed; ``how`` is the signal: SIGTERM is what taking a machine away looks like."""

    how: signal.Signals = signal.SIGKILL

    def strike(self, moment: Moment) -> None:
        if self.is_now(moment):
            os.kill(os.getpid(), self.how)
            time.sleep(10)  # no step further, however long the signal takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall(_At):
    """The worker does nothing for ``seconds``, by default for longer than anybody waits."""

    seconds: float = 1e6

    def strike(self, moment: Moment) -> None:
        if self.is_now(moment):
            time.sleep(self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise(_At):
    """The worker raises ``error``."""

    error: Exception = RuntimeError("a fault that was asked for")

    def strike(self, moment: Moment) -> None:
        if self.is_now(moment):
            raise self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowDown(_At):
    """Each step takes ``seconds`` longer, from ``step`` on if that is given: a straggler."""

    seconds: float = 0.1

    def strike(self, moment: Moment) -> None:
        reached = self.step is None or moment.step >= self.step
        wanted = (None, moment.rank), (None, moment.attempt)
        if moment.phase == self.phase and reached and self.rank in wanted[0] and self.attempt in wanted[1]:
            time.sleep(self.seconds)
