"""Where the time of a run goes: waiting for data, computing, waiting for peers, and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Part = Literal["data", "compute", "communication", "other"]
PARTS: tuple[Part, ...] = ("data", "compute", "communication", "other")

NOTABLE_SHARE = 0.1
NOTABLE_S = 0.1
"""Waiting that is worth a word: so much of the time, and at least so many seconds."""


class EpochTimes(NamedTuple):
    """The time of one worker in one epoch, from the end of the epoch before; the four parts add up to all of it.

    ``data_s`` is spent waiting for batches, ``communication_s`` waiting for peers and not hidden behind computing,
    ``other_s`` in callbacks, checkpoints and validation. ``bytes`` is what the worker has sent. Steps
    are timed without ``other_s``; the slowest is the one with the most work of its own, waiting for peers left out.
    """

    rank: int
    epoch: int
    steps: int
    rows: int
    data_s: float
    compute_s: float
    communication_s: float
    other_s: float
    bytes: int
    median_step_s: float
    p95_step_s: float
    slowest_step: int
    slowest_step_s: float

    @property
    def wall_s(self) -> float:
        return self.data_s + self.compute_s + self.communication_s + self.other_s

    def spent(self, part: Part) -> float:
        seconds: float = getattr(self, f"{part}_s")
        return seconds


class Pace(NamedTuple):
    """One worker in the last moments: rows a second, and the shares of its time; reported now and then."""

    step: int
    rows_per_s: float
    data: float
    compute: float
    communication: float
    other: float


class Straggler(NamedTuple):
    """A worker for which the others have waited ``waited_s``, a ``share`` of all time, and where it spent that."""

    rank: int
    waited_s: float
    share: float
    because: Part

    def __str__(self) -> str:
        reason = {"data": "its data", "compute": "its computing"}.get(self.because, "its callbacks and checkpoints")
        return f"the others waited {self.waited_s:.1f} s ({self.share:.0%}) for worker {self.rank} and {reason}"


def waited_for(waits: Mapping[int, float]) -> dict[int, float]:
    """How long the others waited for each: all leave a meeting together, so who waits least has come last."""
    return {
        rank: max(0.0, _median([wait for other, wait in waits.items() if other != rank]) - own)
        for rank, own in waits.items()
    }


def stragglers(times: Sequence[EpochTimes]) -> list[Straggler]:
    """The workers that others waited for notably, the worst first."""
    waited: dict[int, float] = {}
    for epoch in {each.epoch for each in times}:
        here = {each.rank: each for each in times if each.epoch == epoch}
        for rank, seconds in waited_for({rank: each.communication_s for rank, each in here.items()}).items():
            waited[rank] = waited.get(rank, 0.0) + seconds
    found = []
    for rank, seconds in waited.items():
        share = seconds / max(1e-9, sum(each.wall_s for each in times if each.rank == rank))
        if share >= NOTABLE_SHARE and seconds >= NOTABLE_S:
            found.append(Straggler(rank, seconds, share, _reason(times, rank)))
    return sorted(found, key=lambda each: -each.waited_s)


def pace_of(times: Sequence[EpochTimes]) -> dict[str, float]:
    """Rows a second of all workers together, and the shares of their time."""
    longest_s = max((each.wall_s for each in times), default=0.0) or 1e-9
    total_s = sum(each.wall_s for each in times) or 1e-9
    shares = {f"{part}_share": sum(each.spent(part) for each in times) / total_s for part in PARTS}
    return {"rows_per_s": sum(each.rows for each in times) / longest_s, **shares}


def _reason(times: Sequence[EpochTimes], rank: int) -> Part:
    def longer(part: Part) -> float:
        totals: dict[int, float] = {}
        for each in times:
            totals[each.rank] = totals.get(each.rank, 0.0) + each.spent(part)
        return totals[rank] - _median([seconds for other, seconds in totals.items() if other != rank])

    return max(("data", "compute", "other"), key=longer)


def _median(values: Sequence[float]) -> float:
    ordered, middle = sorted(values), len(values) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
