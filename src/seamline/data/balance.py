"""Dividing a batch among workers, so that all take the same number of steps and every row counts once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """The half-open range of a batch's rows that one worker computes."""

    low: int
    high: int

    @property
    def rows(self) -> int:
        return self.high - self.low

    @property
    def read(self) -> slice:
        """What to read: its rows, or the batch's first row, which counts for nothing there.

        A worker without rows still has to run the model, to stay in step with the others.
        """
        return slice(self.low, self.high) if self.rows else slice(0, 1)


def part(rows: int, worker: int, workers: int, *, full: int) -> Part:
    """One worker's part of a batch; parts differ by one row at most, and together they are the batch.

    A batch that is shorter than the ``full`` size goes to fewer workers rather than giving any of them a single row:
    layers that normalise over rows need two.
    """
    busy = min(workers, max(1, rows // 2)) if rows < full else workers
    if worker >= busy:
        return Part(rows, rows)
    each, extra = divmod(rows, busy)
    low = worker * each + min(worker, extra)
    return Part(low, low + each + (worker < extra))
