"""Data sets of Hugging Face's ``datasets``, which are Arrow tables behind an order of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datasets import Dataset, DatasetDict, IterableDataset  # type: ignore[import-untyped]

from seamline.core.errors import DataError
from seamline.core.shards import Reading
from seamline.data.arrow.chunks import BLOCK_ROWS, even_blocks
from seamline.data.arrow.layout import unfilled
from seamline.data.arrow.shards import Gathered
from seamline.data.arrow.writing import mark
from seamline.data.tables import TableShards


class HuggingFaceShards(TableShards):
    """A data set that is mapped from files stays there; one that streams is written aside."""

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (Dataset, DatasetDict, IterableDataset))

    def names(self) -> Sequence[str]:
        if isinstance(self._data, DatasetDict):
            raise ValueError(f"this is a dict of data sets; choose one of {', '.join(map(repr, self._data))}")
        names = self._data.column_names
        if names is None:
            raise ValueError("a stream that does not know its columns; give it features")
        return list(names)

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        if not isinstance(self._data, Dataset) or self._columns.na == "drop":
            return super().gather(names, reading)
        rows = DatasetChunk(self._data.select_columns(list(names)).with_format("arrow"))
        if not sum(rows.blocks):
            raise DataError("the data has no rows")
        if self._data._indices is None:
            for name in names:
                unfilled(name, self._data.data.column(name).null_count, self._columns.na)
        count = sum(rows.blocks)
        ends = [*rows.read(0, min(100, count), names), *rows.read(max(0, count - 100), count, names)]
        return Gathered([rows], ends[0].slice(0, 1), mark(ends, count))

    def table(self, names: Sequence[str]) -> pa.Table | None:
        return None

    def batches(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        return _batches(self._data.select_columns(list(names)).with_format("arrow"))


@dataclass(frozen=True, slots=True)
class DatasetChunk:
    """The rows of a data set in its own order; it travels as the names of its files."""

    dataset: Any
    home: str | None = None
    divisible: bool = True

    @property
    def blocks(self) -> tuple[int, ...]:
        return even_blocks(len(self.dataset))

    def visible(self) -> bool:
        return True

    def read(self, start: int, stop: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for first in range(start, stop, BLOCK_ROWS):
            yield from self.dataset[first : min(stop, first + BLOCK_ROWS)].select(list(names)).to_batches()


def _batches(dataset: Any) -> Iterator[pa.RecordBatch]:
    for table in dataset.iter(batch_size=BLOCK_ROWS):
        yield from table.to_batches()
