"""Polars frames, and lazy ones, which are computed straight into a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from seamline.data.tables import TableShards


class PolarsShards(TableShards):
    """A frame's columns are Arrow's already; the result of a lazy frame is written aside as it is computed."""

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (pl.DataFrame, pl.LazyFrame))

    def names(self) -> Sequence[str]:
        return list(self._data.collect_schema().names())

    def table(self, names: Sequence[str]) -> pa.Table | None:
        return self._data.select(list(names)).to_arrow() if isinstance(self._data, pl.DataFrame) else None

    def batches(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        return _in_batches(self._data.select(list(names)))


def _in_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    for part in frame.collect_batches(maintain_order=True):
        yield from part.to_arrow().to_batches()
