"""The account of trained rows: proof that no row was lost or seen twice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Any

from seamline.core.errors import LedgerError

Range = tuple[int, int, int]
"""Epoch, first position and end position in that epoch's order of rows."""


class Ledger:
    """Which positions of each epoch's order were trained, as few ranges as possible.

    Batches of all workers join up, so a complete epoch is the single range ``(0, rows)``.
    """

    def __init__(self) -> None:
        self._epochs: dict[int, list[tuple[int, int]]] = {}

    def add(self, ranges: Iterable[Range]) -> None:
        """Enter ranges; raises ``LedgerError`` when a row is already there."""
        for epoch, start, stop in ranges:
            if start < stop:
                self._add(epoch, start, stop)

    def _add(self, epoch: int, start: int, stop: int) -> None:
        known = self._epochs.setdefault(epoch, [])
        place = bisect_left(known, (start, stop))
        before = known[place - 1] if place else None
        after = known[place] if place < len(known) else None
        if (before and before[1] > start) or (after and after[0] < stop):
            raise LedgerError(f"rows {start} to {stop} of epoch {epoch} were trained twice")
        first, last = place, place
        if before and before[1] == start:
            first, start = place - 1, before[0]
        if after and after[0] == stop:
            last, stop = place + 1, after[1]
        known[first:last] = [(start, stop)]

    def ranges(self, epoch: int) -> list[tuple[int, int]]:
        """The trained ranges of one epoch, in order."""
        return list(self._epochs.get(epoch, []))

    @property
    def epochs(self) -> list[int]:
        return sorted(self._epochs)

    def check(self, rows: int) -> None:
        """Raise ``LedgerError`` unless every epoch holds each of ``rows`` rows exactly once."""
        for epoch in self.epochs:
            if self.ranges(epoch) != [(0, rows)]:
                raise LedgerError(f"epoch {epoch} trained {self.ranges(epoch)} instead of all {rows} rows")

    def to_dict(self) -> dict[str, list[tuple[int, int]]]:
        return {str(epoch): ranges for epoch, ranges in self._epochs.items()}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Ledger:
        ledger = cls()
        ledger._epochs = {int(e): [(int(a), int(b)) for a, b in ranges] for e, ranges in saved.items()}
        return ledger
