"""Spark DataFrames: one job writes the rows of each partition aside where they are, and workers read them there."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructField, StructType

from seamline.core.by_value import carried
from seamline.core.shards import Reading
from seamline.data.arrow.answers import Answers, Make
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage
from seamline.data.arrow.writing import write

_ARROW = "spark.sql.execution.arrow"
_WIDTHS = {
    "boolean": 1,
    "byte": 1,
    "short": 2,
    "integer": 4,
    "long": 8,
    "float": 4,
    "double": 8,
    "decimal": 16,
    "date": 4,
    "timestamp": 8,
    "timestamp_ntz": 8,
}
"""Bytes of a value in Arrow's format, for Spark's types whose values are all of one size."""
_NO_LIMIT = 2**31 - 1


class SparkShards(ArrowShards):
    """The named columns of a DataFrame, in the order of its partitions.

    Partitions may be empty, of any size and of any number: workers share rows, not partitions.
    """

    _stage: Stage | None = None

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, DataFrame)

    def names(self) -> Sequence[str]:
        return list(self._data.columns)

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        self._stage = stage = Stage(names, self._columns, reading)
        plain = [self._data[_quoted(name)].alias(f"c{number}") for number, name in enumerate(names)]
        frame = self._data.select(*plain)  # Spark hands over only columns whose names need no quotes
        with _without_warning():
            job = frame.mapInArrow(partial(_write_partition, write, stage.target), "manifest binary")
        with _settings(frame.sparkSession, _limits(frame, stage)):
            rows = job.collect()
        return stage.gathered(pickle.loads(row["manifest"]) for row in rows)

    def beside(self, make: Make, batch_rows: int) -> Any:
        """The DataFrame with the answers beside its rows; computed when somebody asks, where the rows are."""
        answers = Answers.of(make, self._columns, batch_rows)
        names = list(self._data.columns)
        plain = self._data.toDF(*(f"c{number}" for number in range(len(names))))
        with _without_warning():
            example = self._data.limit(1).toArrow()
            fields = answers.fields(_one_batch(example))
            kinds = from_arrow_schema(pa.schema(fields)).fields
            schema = StructType(
                [*plain.schema.fields, *(StructField(f"a{n}", k.dataType) for n, k in enumerate(kinds))]
            )
            answered = plain.mapInArrow(carried(answer_partition, (answers, names), "the model"), schema)
        return answered.toDF(*names, *(each.name for each in fields))

    def close(self) -> None:
        if self._stage is not None:
            left = self._stage.elsewhere
            if left:
                _remove_on_executors(self._data.sparkSession, left)
            self._stage.close()
            self._stage = None


def _limits(frame: Any, stage: Stage) -> dict[str, int]:
    """How much Spark hands over at once.

    Rows of one size are counted. Only where they differ does Spark weigh them: it does so before each row, which takes
    longer than all the rest of its work.
    """
    widths = [_WIDTHS.get(field.dataType.typeName()) for field in frame.schema]
    known = [width for width in widths if width is not None]
    alike = len(known) == len(widths)
    rows = min(stage.rows, max(1, stage.bytes // sum(known))) if alike else stage.rows
    return {
        f"{_ARROW}.maxRecordsPerBatch": rows,
        f"{_ARROW}.maxBytesPerBatch": _NO_LIMIT if alike else stage.bytes,
    }


def _write_partition(write: Callable[..., Any], target: dict[str, Any], batches: Iterator[Any]) -> Iterator[Any]:
    import pickle

    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    named = (batch.rename_columns(target["names"]) for batch in batches)
    written = write(target, f"part-{context.partitionId() if context else 0:08d}", named)
    if written is not None:
        yield pa.RecordBatch.from_pydict({"manifest": [pickle.dumps(written)]})


_write_partition.__module__ = "__main__"  # functions of that module are pickled by value


def answer_partition(orders: tuple[Answers, list[str]], batches: Iterator[Any]) -> Iterator[Any]:
    """The batches of one partition with the answers beside them, under names that need no quotes."""
    answers, names = orders
    context = TaskContext.get()
    for batch in batches:
        answered = answers.beside(batch.rename_columns(names), context.cpus() if context else 1)
        count = answered.num_columns - len(names)
        if count:
            plain = [*(f"c{n}" for n in range(len(names))), *(f"a{n}" for n in range(count))]
            yield answered.rename_columns(plain)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)


@contextlib.contextmanager
def _without_warning() -> Iterator[None]:
    """pyspark warns of every pandas 3, and none is used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


@contextlib.contextmanager
def _settings(session: Any, wanted: dict[str, int]) -> Iterator[None]:
    """Settings of the session for one job; afterwards they are what they were."""
    before = {name: session.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            session.conf.set(name, str(value))
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)


def _remove_on_executors(session: Any, folders: list[str]) -> None:
    """Remove folders on machines that this one does not see; what an executor misses goes with the application."""
    context = getattr(session, "sparkContext", None)
    if context is None:  # a client of Spark Connect, which has none
        return
    slots = max(8, 2 * context.defaultParallelism)

    def remove(_: Any) -> None:
        for path in folders:
            shutil.rmtree(path, ignore_errors=True)

    remove.__module__ = "__main__"
    context.parallelize(range(slots), slots).foreachPartition(remove)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
