"""Tables as workers read them: in memory where they fit, else window by window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from seamline.core.errors import DataError
from seamline.core.shards import Batch, Columns, Numbered, Reading, Shard
from seamline.core.world import World
from seamline.data.arrays import ArrayShards
from seamline.data.arrow.blocks import Blocks
from seamline.data.arrow.buffers import Buffers
from seamline.data.arrow.chunks import Chunk
from seamline.data.arrow.layout import Arrays, Layout
from seamline.data.arrow.plan import Apart, InOrder, Together, Window
from seamline.data.arrow.sight import Sight, all_of, shared_by_sight
from seamline.data.columns import require, wanted

_WINDOWS = 3
"""The one that batches come from, the one being filled, and the one whose last batch is still held."""
_ORDER_BYTES = 4
"""What a row's place in the order takes while its window is filled."""
_BLOCKS = 16
"""Blocks that a window is put together from at least, where they can be that small, so that rows mix."""
_MIXED = 2**20
"""Rows that mix well enough: windows become no longer than this if they hold ``_BLOCKS`` blocks and batches then.

A worker that starts has to touch less fresh memory, and it has its first batch sooner.
"""
_HELD = 8
"""A table is held whole where that takes at most this part of the buffer; larger ones are faster in windows."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What an adapter has found or written aside: where the rows are, and the first of them."""

    chunks: Sequence[Chunk]
    example: pa.RecordBatch
    mark: int = 0
    """A number that differs when the rows or their order do."""


class ArrowShards:
    """Named columns of a table; each kind of table says what columns it has and how its rows are found."""

    batch_size = None

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        self._data = data
        self._columns = self._complete(columns)
        self._gathered: Gathered | None = None
        self._window: int | None = None

    def names(self) -> Sequence[str]:
        """The columns that there are."""
        raise NotImplementedError

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        """Find the rows, or write these columns of them aside."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove what was written aside; twice is as good as once."""

    @property
    def rows(self) -> int | None:
        return None if self._gathered is None else sum(sum(chunk.blocks) for chunk in self._gathered.chunks)

    @property
    def signature(self) -> dict[str, Any]:
        return {"window": self._window, "data": self._gathered and self._gathered.mark}

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        if reading.batch_size is None:
            raise ValueError("batch_size is missing; a table has no batches of its own")
        try:
            self._gathered = found = self.gather(wanted(self._columns), reading)
            if not self.rows:
                raise DataError("the data has no rows")
            layout = Layout.of(found.example, self._columns)
        except BaseException:
            self.close()
            raise
        shards = [ArrowShard(tuple(found.chunks), layout, reading, n, workers) for n in range(workers)]
        self._window = shards[0].window_steps
        return list(shards)

    def _complete(self, columns: Columns) -> Columns:
        there = self.names()
        if columns.features is None:
            raise ValueError(
                f"a table needs feature_cols=[...], and label_cols=[...] to learn; it has {', '.join(map(repr, there))}"
            )
        na = columns.na
        for name in (*wanted(columns), *columns.categories, *(na if isinstance(na, dict) else ())):
            require(name, there)
        if isinstance(na, str) and na != "drop":
            raise ValueError(f"na={na!r} means nothing; say 'drop', a number, or a dict of numbers by column")
        return columns


@dataclass(frozen=True)
class ArrowShard:
    """All chunks, of which one worker reads its share; once the workers have met, of those that it can see."""

    chunks: tuple[Chunk, ...]
    layout: Layout
    reading: Reading
    worker: int
    workers: int
    sight: Sight | None = None
    """What each worker reads, where they do not all see everything."""

    def meet(self, world: World) -> ArrowShard:
        """Find out who sees what; every worker comes to the same answer."""
        seen = world.all_gather([n for n, chunk in enumerate(self.chunks) if chunk.visible()])
        everything = list(range(len(self.chunks)))
        if all(mine == everything for mine in seen):
            return self
        return replace(self, sight=shared_by_sight(self.chunks, seen))

    @property
    def steps(self) -> int:
        return self._whole.steps if self._in_memory else self._plan.steps

    @property
    def numbered(self) -> Numbered | None:
        return self._whole if self._in_memory else None

    @property
    def window_steps(self) -> int | None:
        """Batches in a window; ``None`` where all rows are in memory."""
        return None if self._in_memory else max(1, self._window_rows // self._batch_size)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        if self._in_memory:
            yield from self._whole.batches(epoch, first_step)
            return
        for window, arrays in ahead(self._plan.windows(epoch, first_step), self._load):
            for cut in window.cuts:
                rows = cut.high - cut.low
                pair = self.layout.batch(arrays, cut.low, cut.high) if rows else self.layout.spare()
                yield Batch(*pair, cut.start, rows, cut.batch_rows)

    @property
    def _batch_size(self) -> int:
        assert self.reading.batch_size is not None
        return self.reading.batch_size

    @cached_property
    def _blocks(self) -> Blocks:
        return Blocks.of(self.chunks, max(1, self._window_rows // _BLOCKS))

    @property
    def _in_memory(self) -> bool:
        """Whether every worker holds all rows; then the order is that of arrays."""
        needed = self._blocks.rows * self.layout.row_bytes
        fits = needed <= self.reading.memory_bytes // _HELD
        return fits and self.sight is None and not self.reading.every_row_in_order

    @cached_property
    def _window_rows(self) -> int:
        fitting = self.reading.memory_bytes // _WINDOWS // (self.layout.row_bytes + _ORDER_BYTES)
        indivisible = (size for chunk in self.chunks if not chunk.divisible for size in chunk.blocks)
        enough = max(_MIXED, _BLOCKS * max(indivisible, default=0), _BLOCKS * self._batch_size)
        return max(1, min(fitting, enough))

    @cached_property
    def _plan(self) -> Together | InOrder | Apart:
        read = self.reading
        if read.every_row_in_order:
            sight = self.sight or all_of(self._blocks, self.workers)
            return InOrder(self._blocks, self.worker, sight.stretches, self._batch_size, self._window_rows)
        if self.sight is not None:
            own, rows = self.sight.blocks(self._blocks, self.worker), self.sight.rows
            return Apart(own, self.worker, rows, self._batch_size, self._window_rows, read.shuffle, read.seed)
        steps = self.window_steps
        assert steps is not None
        return Together(self._blocks, self.worker, self.workers, self._batch_size, steps, read.shuffle, read.seed)

    @cached_property
    def _buffers(self) -> Buffers:
        return Buffers(self.layout)

    @cached_property
    def _whole(self) -> Any:
        rows = self._blocks.rows
        arrays = self._load(Window(self._blocks.spans(0, rows), rows, _as_it_is, ()))
        data = ArrayShards(self.layout.batch(arrays, 0, rows))
        return data.split(self.workers, self.reading)[self.worker]

    def _load(self, window: Window) -> Arrays:
        arrays, at = self._buffers.take(window.rows), 0
        for span in window.spans:
            for batch in self.chunks[span.chunk].read(span.start, span.stop, self.layout.names):
                chosen, places = window.where(at, at + batch.num_rows)
                self.layout.put(batch, chosen, arrays, places)
                at += batch.num_rows
        return arrays


def _as_it_is(low: int, high: int) -> tuple[slice, slice]:
    return slice(None), slice(low, high)


def ahead(windows: Iterator[Window], load: Callable[[Window], Arrays]) -> Iterator[tuple[Window, Arrays]]:
    """Each window with its rows; the next is read while this one is used."""

    def following() -> tuple[Window, Arrays] | None:
        window = next(windows, None)
        return None if window is None else (window, load(window))

    with ThreadPoolExecutor(1, thread_name_prefix="seamline-read") as reader:
        pending = reader.submit(following)
        while (loaded := pending.result()) is not None:
            pending = reader.submit(following)
            yield loaded
            del loaded
