"""Relations of DuckDB, whose result is written aside as it is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from seamline.data.arrow.chunks import BLOCK_ROWS
from seamline.data.tables import TableShards


class DuckShards(TableShards):
    """A relation stands for a query; it runs once."""

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, duckdb.DuckDBPyRelation)

    def names(self) -> Sequence[str]:
        return list(self._data.columns)

    def table(self, names: Sequence[str]) -> pa.Table | None:
        return None

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        chosen = self._data.project(quoted)
        reader = getattr(chosen, "to_arrow_reader", None) or chosen.fetch_record_batch  # its older name
        yield from reader(BLOCK_ROWS)
