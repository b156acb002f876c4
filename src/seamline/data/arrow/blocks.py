"""All rows of a table as blocks that are read whole, in the order they lie in or in a seeded one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from seamline.data.arrow.chunks import Chunk
from seamline.data.order import Indices, epoch_order


@dataclass(frozen=True, slots=True)
class Span:
    """Rows that lie side by side in one chunk."""

    chunk: int
    start: int
    stop: int


@dataclass(frozen=True)
class Blocks:
    """Blocks in some order: the chunk of each, its first row there, and how many rows it has."""

    chunk: Indices
    start: Indices
    size: Indices

    @classmethod
    def of(cls, chunks: Sequence[Chunk], longest: int | None = None) -> Blocks:
        """The blocks of all chunks as they lie, of at most ``longest`` rows where they can be divided."""
        table = [
            (number, start, size)
            for number, chunk in enumerate(chunks)
            for start, size in _pieces(chunk.blocks, longest if chunk.divisible else None)
        ]
        columns = np.array(table, np.int64).reshape(-1, 3).T
        return cls(*columns)

    @cached_property
    def _ends(self) -> Indices:
        return np.cumsum(self.size)

    @property
    def rows(self) -> int:
        return int(self._ends[-1]) if len(self.size) else 0

    def shuffled(self, seed: int, epoch: int) -> Blocks:
        order = epoch_order(len(self.size), shuffle=True, seed=seed, epoch=epoch)
        return Blocks(self.chunk[order], self.start[order], self.size[order])

    def piece(self, low: int, high: int) -> Blocks:
        """Rows ``low`` to ``high`` of this order, as blocks."""
        spans = self.spans(low, high)
        table = np.array([(s.chunk, s.start, s.stop - s.start) for s in spans], np.int64).reshape(-1, 3).T
        return Blocks(*table)

    def spans(self, low: int, high: int) -> list[Span]:
        """Rows ``low`` to ``high`` of this order; blocks that continue each other come as one."""
        if low >= high:
            return []
        found: list[Span] = []
        for number in range(int(np.searchsorted(self._ends, low, side="right")), len(self.size)):
            end = int(self._ends[number])
            begin = end - int(self.size[number])
            if begin >= high:
                break
            chunk, offset = int(self.chunk[number]), int(self.start[number]) - begin
            start, stop = max(low, begin) + offset, min(high, end) + offset
            if found and (found[-1].chunk, found[-1].stop) == (chunk, start):
                found[-1] = Span(chunk, found[-1].start, stop)
            else:
                found.append(Span(chunk, start, stop))
        return found


def _pieces(sizes: Sequence[int], longest: int | None) -> Iterator[tuple[int, int]]:
    start = 0
    for size in sizes:
        for first in range(0, size, longest or size or 1):
            yield start + first, min(longest or size, size - first)
        start += size
