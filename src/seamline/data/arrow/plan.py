"""Which rows a worker reads when: windows that fit its buffer, each a few stretches of blocks, cut into batches.

The order of an epoch is a function of the seed, the epoch and the step. Blocks come in a seeded order, and windows are
stretches of that order, as many batches long as fit the buffer. Within a window each place of a batch has a lane: rows
that lie side by side in the order of blocks, as many as the window has batches. A batch takes one row of each lane, in
an order of the lane's own. So every batch is spread over the whole window, and a worker that computes some places of
each batch reads only their lanes, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seamline.core import rng
from seamline.data.arrow.blocks import Blocks, Span
from seamline.data.balance import part
from seamline.data.order import Indices, step_count

_DRAWN = 65536
"""Rows of neighbouring lanes that share a permutation, which each lane begins somewhere else."""

Where = Callable[[int, int], tuple["slice | Indices", "slice | Indices"]]
"""For rows ``a`` to ``b`` of a window's spans: which of them are taken, and to which places."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One batch: its rows in the window's arrays, and what ``Batch`` says of them."""

    low: int
    high: int
    start: int
    batch_rows: int


@dataclass(frozen=True, slots=True)
class Window:
    """Rows that are in memory together: where they come from, where they go, and the batches they make."""

    spans: Sequence[Span]
    rows: int
    where: Where
    cuts: Sequence[Cut]


@dataclass(frozen=True, slots=True)
class Together:
    """All workers see all rows: the same batches for any number of workers."""

    blocks: Blocks
    worker: int
    workers: int
    batch_size: int
    window_steps: int
    shuffle: bool
    seed: int

    @property
    def steps(self) -> int:
        return step_count(self.blocks.rows, self.batch_size)

    def windows(self, epoch: int, first_step: int) -> Iterator[Window]:
        blocks = self.blocks.shuffled(self.seed, epoch) if self.shuffle else self.blocks
        for number in range(first_step // self.window_steps, step_count(self.steps, self.window_steps)):
            done = max(0, first_step - number * self.window_steps)
            yield self._window(blocks, epoch, number, done)

    def _window(self, blocks: Blocks, epoch: int, number: int, done: int) -> Window:
        size = self.batch_size
        first = number * self.window_steps * size
        batches, rest = divmod(min(self.window_steps * size, blocks.rows - first), size)
        mine = part(size, self.worker, self.workers, full=size)
        last = part(rest, self.worker, self.workers, full=size)
        cuts = [
            Cut(n * mine.rows, (n + 1) * mine.rows, first + n * size + mine.low, size) for n in range(done, batches)
        ]
        whole = batches * mine.rows
        if rest:
            cuts.append(Cut(whole, whole + last.rows, first + batches * size + last.low, rest))
        if not self.shuffle:
            spans = blocks.spans(first, first + batches * size + rest)
            lines = _Lines(size, batches, mine.low, mine.high, last.low, last.high)
            return Window(spans, whole + last.rows, lines, cuts)
        tail = first + batches * size
        spans = [
            *blocks.spans(first + mine.low * batches, first + mine.high * batches),
            *blocks.spans(tail + last.low, tail + last.high),
        ]
        lanes = _Lanes(lane_orders(self.seed, epoch, number, mine.low, mine.high, batches))
        return Window(spans, whole + last.rows, lanes, cuts)


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Each lane's rows to the batches that its order says; what comes after the lanes stays as it is."""

    orders: NDArray[np.int32]

    def __call__(self, low: int, high: int) -> tuple[slice | Indices, slice | Indices]:
        lanes, batches = self.orders.shape
        whole = lanes * batches
        inside = min(high, whole)
        places = self.orders.reshape(-1)[low:inside].astype(np.int64)
        places *= lanes
        places += np.arange(low, inside) // max(1, batches)
        if high > whole:
            places = np.concatenate([places, np.arange(max(low, whole), high)])
        return slice(None), places


@dataclass(frozen=True, slots=True)
class _Lines:
    """A worker's part of each batch, where batches lie one behind the other."""

    batch_size: int
    batches: int
    low: int
    high: int
    last_low: int
    last_high: int

    def __call__(self, low: int, high: int) -> tuple[slice | Indices, slice | Indices]:
        rows = self.high - self.low
        whole = self.batches * self.batch_size
        if rows == self.batch_size and (self.last_low, self.last_high - self.last_low) == (0, max(0, high - whole)):
            return slice(None), slice(low, high)
        batch, place = np.divmod(np.arange(low, high), self.batch_size)
        inside = batch < self.batches
        first = np.where(inside, self.low, self.last_low)
        mine = np.flatnonzero((place >= first) & (place < np.where(inside, self.high, self.last_high)))
        return mine, (batch * rows + place - first)[mine]


def lane_orders(seed: int, epoch: int, window: int, low: int, high: int, batches: int) -> NDArray[np.int32]:
    """For each lane from ``low`` to ``high`` the batch of each of its rows, the same whichever lanes are asked for.

    Drawing a permutation for each would take longer than reading its rows.
    """
    orders = np.empty((high - low, batches), np.int32)
    if orders.size == 0:
        return orders
    key, lanes = [rng.derive(seed, 1), epoch], max(1, _DRAWN // batches)
    for group in range(low // lanes, (high - 1) // lanes + 1):
        generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, window, group]))
        twice = np.tile(generator.permutation(np.arange(batches, dtype=np.int32)), 2)
        begins = generator.integers(0, batches, lanes)
        first, last = max(low, group * lanes), min(high, (group + 1) * lanes)
        mine = begins[first - group * lanes : last - group * lanes]
        orders[first - low : last - low] = np.lib.stride_tricks.sliding_window_view(twice, batches)[mine]
    return orders


@dataclass(frozen=True, slots=True)
class InOrder:
    """Rows as they come, for reading each once: every worker takes stretches of its own.

    ``stretches`` are the rows of each worker, by number.
    """

    blocks: Blocks
    worker: int
    stretches: Sequence[Sequence[tuple[int, int]]]
    batch_size: int
    window_rows: int

    @property
    def steps(self) -> int:
        return max(self._steps(worker) for worker in range(len(self.stretches)))

    def _steps(self, worker: int) -> int:
        return sum(step_count(high - low, self._part) for low, high in self.stretches[worker])

    @property
    def _part(self) -> int:
        return max(1, self.batch_size // len(self.stretches))

    def windows(self, _epoch: int, first_step: int) -> Iterator[Window]:
        size = self._part
        skipped = first_step
        for low, high in self.stretches[self.worker]:
            begin = min(high, low + skipped * size)
            skipped -= step_count(begin - low, size)
            longest = max(1, self.window_rows // size) * size
            for first in range(begin, high, longest):
                rows = min(longest, high - first)
                cuts = [Cut(n, min(n + size, rows), first + n, min(size, rows - n)) for n in range(0, rows, size)]
                yield Window(self.blocks.spans(first, first + rows), rows, _as_they_are, cuts)


def _as_they_are(low: int, high: int) -> tuple[slice, slice]:
    return slice(None), slice(low, high)


@dataclass(frozen=True, slots=True)
class Apart:
    """Workers that see different rows: each gives to every batch in proportion to what it has.

    ``blocks`` are this worker's, ``rows`` is what each worker has.
    """

    blocks: Blocks
    worker: int
    rows: Sequence[int]
    batch_size: int
    window_rows: int
    shuffle: bool
    seed: int

    @property
    def steps(self) -> int:
        return step_count(sum(self.rows), self.batch_size)

    def windows(self, epoch: int, first_step: int) -> Iterator[Window]:
        blocks = self.blocks.shuffled(self.seed, epoch) if self.shuffle else self.blocks
        most = -(-self.batch_size * self.rows[self.worker] // sum(self.rows)) + len(self.rows)
        length = max(1, self.window_rows // most)
        for number in range(first_step // length, step_count(self.steps, length)):
            yield self._window(blocks, epoch, number, range(number * length, (number + 1) * length), first_step)

    def _window(self, blocks: Blocks, epoch: int, number: int, steps: range, first_step: int) -> Window:
        cuts = []
        first = self._taken(steps.start)[self.worker]
        last = first
        for step in range(steps.start, min(steps.stop, self.steps)):
            before, after = self._taken(step), self._taken(step + 1)
            shares = [b - a for a, b in zip(before, after, strict=True)]
            low, last = before[self.worker], after[self.worker]
            start = step * self.batch_size + sum(shares[: self.worker])
            if step >= first_step:
                cuts.append(Cut(low - first, last - first, start, sum(shares)))
        where: Where = _as_they_are
        if self.shuffle:
            key = [rng.derive(self.seed, 2, self.worker), epoch]
            generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, number, 0]))
            where = _Anywhere(generator.permutation(last - first).astype(np.int32))
        return Window(blocks.spans(first, last), last - first, where, cuts)

    def _taken(self, step: int) -> list[int]:
        return shared_out(min(step * self.batch_size, sum(self.rows)), self.rows)


@dataclass(frozen=True, slots=True)
class _Anywhere:
    order: NDArray[np.int32]

    def __call__(self, low: int, high: int) -> tuple[slice, Indices]:
        return slice(None), self.order[low:high].astype(np.int64)


def shared_out(taken: int, rows: Sequence[int]) -> list[int]:
    """How many of the first ``taken`` rows each worker gives, in proportion; more taken is never fewer of anyone."""
    shares, left = [], sum(rows)
    for own in rows:
        share = taken * own // left if left else 0
        shares.append(share)
        taken, left = taken - share, left - own
    return shares
