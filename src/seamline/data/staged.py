"""Data that lies in shards somewhere, each of which is written aside where it is: XShards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seamline.core.shards import Columns, Reading
from seamline.data.arrow.answers import Answers, Make
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage
from seamline.data.arrow.writing import write
from seamline.data.columns import wanted


class StagedShards(ArrowShards):
    """Shards that are frames, tables or dicts of arrays.

    ``{"x": array, "y": array}`` is inputs and targets without saying so, and so is a pair; ``x`` may be several arrays.
    """

    _stage: Stage | None = None

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        self._names: list[str] = data.transform_shard(_names_of).first()
        if columns.features is None:
            features, labels = ([name for name in self._names if name.split(".")[0] == part] for part in ("x", "y"))
            columns = replace(columns, features=features or None, labels=labels or None)
        super().__init__(data, columns)

    @staticmethod
    def accepts(data: object) -> bool:
        return all(callable(getattr(data, method, None)) for method in ("transform_shard", "collect", "first"))

    def names(self) -> Sequence[str]:
        return self._names

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        self._stage = stage = Stage(names, self._columns, reading)
        written = self._data.transform_shard(_write_shard, stage.target).collect()
        parts = [each for each in written if each is not None]
        return stage.gathered({**each, "part": f"part-{number:08d}"} for number, each in enumerate(parts))

    def beside(self, make: Make, batch_rows: int) -> Any:
        """Shards with the answers beside their rows: columns of a frame or table, entries of a dict."""
        return self._data.transform_shard(_answer_shard, Answers.of(make, self._columns, batch_rows))

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None


def _names_of(shard: Any) -> list[str]:
    return list(_table(shard).column_names)


def _write_shard(shard: Any, target: dict[str, Any]) -> dict[str, Any] | None:
    return write(target, "shard", iter(_table(shard).to_batches()))


def _answer_shard(shard: Any, answers: Answers) -> Any:
    import pyarrow as pa

    table = _table(shard)
    batches = [answers.beside(batch) for batch in table.combine_chunks().to_batches()]
    answered = pa.Table.from_batches(batches) if batches else table
    if isinstance(shard, pa.Table):
        return answered
    if hasattr(shard, "to_arrow"):
        return type(shard)(answered)
    added = answered.select(answered.column_names[table.num_columns :])
    if hasattr(shard, "iloc"):
        kept = shard if len(added) == len(shard) else shard[shard[wanted(answers.columns)].notna().all(axis=1)]
        return kept.assign(**{name: _values(added.column(name)) for name in added.column_names})
    if isinstance(shard, tuple):
        shard = {"x": shard[0], "y": shard[1]}
    shard = dict(shard) if isinstance(shard, Mapping) else {"x": shard}
    return {**shard, **{name: _array(added.column(name)) for name in added.column_names}}


def _values(column: Any) -> Any:
    """A column for a frame: numbers, or one array for each row."""
    array = _array(column)
    return array if array.ndim == 1 else list(array)


def _array(column: Any) -> Any:
    column = column.combine_chunks()
    shape = [len(column)]
    while hasattr(column, "flatten") and hasattr(column, "offsets"):
        inner = column.flatten()
        shape.append(len(inner) // max(1, len(column)))
        column = inner
    return column.to_numpy(zero_copy_only=False).reshape(shape)


def _table(shard: Any) -> Any:
    import pyarrow as pa

    if isinstance(shard, pa.Table):
        return shard
    if hasattr(shard, "to_arrow"):
        return shard.to_arrow()
    if hasattr(shard, "iloc"):
        return pa.Table.from_pandas(shard, preserve_index=False)
    if isinstance(shard, tuple) and len(shard) == 2:
        shard = {"x": shard[0], "y": shard[1]}
    arrays = dict(_named(shard)) if isinstance(shard, Mapping) else {"x": shard}
    return pa.table({name: _column(np.asarray(array)) for name, array in arrays.items()})


def _named(shard: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in shard.items():
        if isinstance(value, (list, tuple)) and value and hasattr(value[0], "__array__"):
            yield from ((f"{name}.{number}", each) for number, each in enumerate(value))
        else:
            yield name, value


def _column(array: Any) -> Any:
    """An array of any shape as a column of lists in lists, without a copy."""
    import pyarrow as pa

    column = pa.array(np.ascontiguousarray(array).reshape(-1))
    for length in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, length)
    return column
