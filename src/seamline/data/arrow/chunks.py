"""Where rows lie in Arrow's format: files of record batches, row groups of Parquet, tables in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

BLOCK_ROWS = 65536
"""Rows that are read together, where the data does not say."""


class Chunk(Protocol):
    """A known number of rows that a worker reads piece by piece; the handle travels, the rows need not."""

    @property
    def blocks(self) -> Sequence[int]:
        """The rows of each piece that is best read whole, in order."""
        ...

    @property
    def divisible(self) -> bool:
        """Whether a part of a block costs only a part to read, so that blocks may be as small as one likes."""
        ...

    @property
    def home(self) -> str | None:
        """The machine where it lies, where others do not see it."""
        ...

    def visible(self) -> bool:
        """Whether this process can read it."""
        ...

    def read(self, start: int, stop: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of the rows from ``start`` to ``stop``, in order."""
        ...


@dataclass(frozen=True, slots=True)
class IpcChunk:
    """A file of record batches on one machine's disk, or on a disk that all share.

    It is read and not mapped: pages of a map would count as this process's memory for as long as the file is open.
    """

    path: str
    blocks: tuple[int, ...]
    home: str | None = None
    divisible: bool = False

    def visible(self) -> bool:
        return Path(self.path).exists()

    def read(self, start: int, stop: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        ends = np.cumsum(self.blocks)
        first = int(np.searchsorted(ends, start, side="right"))
        with pa.OSFile(self.path) as file:
            reader = pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(use_threads=False))
            for number in range(first, len(ends)):
                low, high = int(ends[number]) - self.blocks[number], int(ends[number])
                if low >= stop:
                    return
                yield _cut(reader.get_batch(number).select(list(names)), start - low, min(stop, high) - low)


@dataclass(frozen=True, slots=True)
class TableChunk:
    """A table in memory; it travels to the workers, which on one machine map it."""

    table: pa.Table
    home: str | None = None
    divisible: bool = True

    @property
    def blocks(self) -> tuple[int, ...]:
        return even_blocks(self.table.num_rows)

    def visible(self) -> bool:
        return True

    def read(self, start: int, stop: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        part = self.table.select(list(names)).slice(start, stop - start)
        yield from part.to_batches(max_chunksize=BLOCK_ROWS)


@dataclass(frozen=True, slots=True)
class ParquetChunk:
    """One Parquet file; its row groups are the blocks, because they are decoded whole."""

    path: str
    filesystem: Any
    blocks: tuple[int, ...]
    home: str | None = None
    divisible: bool = False

    def visible(self) -> bool:
        import pyarrow.fs as fs

        return bool(self.filesystem.get_file_info(self.path).type == fs.FileType.File)

    def read(self, start: int, stop: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        ends = np.cumsum(self.blocks)
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(ends, stop, side="left"))
        low = int(ends[first]) - self.blocks[first]
        # Not ahead of what is wanted: pyarrow would read all groups before it decodes the first.
        with self.filesystem.open_input_file(self.path) as source, pq.ParquetFile(source, pre_buffer=False) as file:
            for group in range(first, last + 1):
                for batch in file.iter_batches(BLOCK_ROWS, row_groups=[group], columns=list(names)):
                    high = low + batch.num_rows
                    if low < stop and high > start:
                        yield _cut(batch.select(list(names)), start - low, stop - low)
                    low = high


def even_blocks(rows: int) -> tuple[int, ...]:
    whole, rest = divmod(rows, BLOCK_ROWS)
    return (BLOCK_ROWS,) * whole + ((rest,) if rest else ())


def _cut(batch: pa.RecordBatch, start: int, stop: int) -> pa.RecordBatch:
    start, stop = max(0, start), min(stop, batch.num_rows)
    return batch if (start, stop) == (0, batch.num_rows) else batch.slice(start, stop - start)
