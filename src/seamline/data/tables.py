"""Tables of pyarrow, and whatever gives record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from seamline.core.errors import DataError
from seamline.core.shards import Reading
from seamline.data.arrow.chunks import TableChunk
from seamline.data.arrow.layout import unfilled
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage
from seamline.data.arrow.writing import mark


class TableShards(ArrowShards):
    """A ``pyarrow.Table``, which stays where it is, or a ``RecordBatch``, ``Dataset``, ``Scanner`` or reader.

    What gives its record batches one after the other is written aside: it may not fit in memory, and it has to be
    read again in every epoch.
    """

    _stage: Stage | None = None

    @staticmethod
    def accepts(data: object) -> bool:
        kinds = {"Table", "RecordBatch", "RecordBatchReader", "Dataset", "Scanner"}
        return any(base.__module__.startswith("pyarrow.") and base.__name__ in kinds for base in type(data).__mro__)

    def names(self) -> Sequence[str]:
        return list(self._schema().names)

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        table = self.table(names)
        if table is None:
            self._stage = Stage(names, self._columns, reading)
            return self._stage.write(iter(self.batches(names)))
        if self._columns.na == "drop":
            table = table.drop_null()
        for name in names:
            unfilled(name, table.column(name).null_count, self._columns.na)
        if not table.num_rows:
            raise DataError("the data has no rows")
        ends = [*table.slice(0, 100).to_batches(), *table.slice(max(0, table.num_rows - 100)).to_batches()]
        return Gathered([TableChunk(table)], ends[0].slice(0, 1), mark(ends, table.num_rows))

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    def table(self, names: Sequence[str]) -> pa.Table | None:
        """The columns as a table that is in memory already; ``None`` where it is not."""
        if isinstance(self._data, pa.RecordBatch):
            return pa.Table.from_batches([self._data]).select(list(names))
        return self._data.select(list(names)) if isinstance(self._data, pa.Table) else None

    def batches(self, names: Sequence[str]) -> Iterable[pa.RecordBatch]:
        """The columns piece by piece, of what is not."""
        if isinstance(self._data, pa.RecordBatchReader):
            return _read_once(self._data)
        if hasattr(self._data, "scanner"):
            return _read_once(self._data.scanner(columns=list(names)).to_batches())
        return _read_once(self._data.to_batches())

    def _schema(self) -> Any:
        return self._data.projected_schema if hasattr(self._data, "projected_schema") else self._data.schema


def _read_once(reader: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from reader
