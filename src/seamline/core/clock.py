"""What times a worker: where its seconds go, step by step, and what it sends."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from seamline.core.profile import PARTS, EpochTimes, Pace, Part

_FINENESS = 20
"""Steps whose durations differ by less than a twentieth are counted together."""

T = TypeVar("T")


class Clock:
    """Times one worker; whoever lets it wait for peers says so by ``communicating`` or ``communicated``.

    It holds totals and counts, so its size does not grow with the number of steps.
    """

    def __init__(self) -> None:
        self._part: Part = "other"
        self._step = 0
        self.start()

    def start(self) -> None:
        """Forget what was, and begin an epoch's account here."""
        self._since = time.perf_counter()
        self._away_s = 0.0
        self._spent: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._bytes = self._steps = self._rows = 0
        self._spread = _Spread()
        self._slowest = (0, 0.0)
        self._step_began = self._since, 0.0
        self._told = self._since, dict(self._spent), 0

    def fetched(self, batches: Iterable[T]) -> Iterator[T]:
        """The same batches; the time until each has come is time for data."""
        self._enter("data")
        self._step_began = self._since, self._spent["communication"]
        for batch in batches:
            self._enter("compute")
            yield batch
            self._enter("data")
            self._step_began = self._since, self._spent["communication"]
        self._enter("other")

    def step_done(self, rows: int) -> None:
        """The batch has become an update of the weights."""
        self._enter("other")
        began, communicated_s = self._step_began
        whole_s = self._since - began
        own_s = whole_s - (self._spent["communication"] - communicated_s)
        self._step += 1
        self._steps += 1
        self._rows += rows
        self._spread.add(whole_s)
        if own_s > self._slowest[1]:
            self._slowest = self._step, own_s

    @contextmanager
    def communicating(self, sent: int) -> Iterator[None]:
        """Within it, the worker waits for its peers and sends so many bytes."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.communicated(time.perf_counter() - began, sent)

    def communicated(self, seconds: float, sent: int) -> None:
        self._away_s += seconds
        self._spent["communication"] += seconds
        self._bytes += sent

    def close(self, rank: int, epoch: int, step: int) -> EpochTimes:
        """The account of the epoch, after which the next one begins. ``step`` counts those of the whole run."""
        self._enter("other")
        spent, (slowest, slowest_s) = self._spent, self._slowest
        times = EpochTimes(
            rank,
            epoch,
            self._steps,
            self._rows,
            spent["data"],
            spent["compute"],
            spent["communication"],
            spent["other"],
            self._bytes,
            self._spread.quantile(0.5),
            self._spread.quantile(0.95),
            slowest and step - self._step + slowest,
            slowest_s,
        )
        self.start()
        return times

    def pace(self, every_s: float) -> Pace | None:
        """The last moments, if ``every_s`` has passed since they were told."""
        now = time.perf_counter()
        then, spent, rows = self._told
        if now - then < every_s:
            return None
        self._enter(self._part)
        self._told = now, dict(self._spent), self._rows
        passed = max(1e-9, sum(self._spent.values()) - sum(spent.values()))
        shares = [(self._spent[part] - spent[part]) / passed for part in PARTS]
        return Pace(self._steps, (self._rows - rows) / (now - then), *shares)

    def _enter(self, part: Part) -> None:
        now = time.perf_counter()
        self._spent[self._part] += now - self._since - self._away_s
        self._since, self._away_s, self._part = now, 0.0, part


class _Spread:
    """Durations counted by their size, for quantiles that are right to a few percent."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        size = round(math.log(max(seconds, 1e-9)) * _FINENESS)
        self._counts[size] = self._counts.get(size, 0) + 1

    def quantile(self, share: float) -> float:
        left = share * sum(self._counts.values())
        for size, count in sorted(self._counts.items()):
            left -= count
            if left <= 0:
                return math.exp(size / _FINENESS)
        return 0.0


def reduced(payload: int, workers: int) -> int:
    """Bytes that each worker sends when a sum goes around a ring and back."""
    return 2 * payload * (workers - 1) // workers


def gathered(payload: int, workers: int) -> int:
    """Bytes that each worker sends until all have everybody's."""
    return payload * (workers - 1)


def shared(payload: int, workers: int) -> int:
    """Bytes that each worker sends, on average, until all have those of one."""
    return payload * (workers - 1) // workers
