"""Spark DataFrames: one job writes the rows of each partition aside where they are, and workers read them there."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from seamline.core.shards import Reading
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage
from seamline.data.arrow.writing import write

_ARROW = "spark.sql.execution.arrow"


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
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "PySpark does not yet fully support pandas", FutureWarning
            )  # none is used
            job = frame.mapInArrow(partial(_write_partition, write, stage.target), "manifest binary")
        limits = {f"{_ARROW}.maxRecordsPerBatch": stage.rows, f"{_ARROW}.maxBytesPerBatch": stage.bytes}
        with _settings(frame.sparkSession, limits):
            rows = job.collect()
        return stage.gathered(pickle.loads(row["manifest"]) for row in rows)

    def close(self) -> None:
        if self._stage is not None:
            left = self._stage.elsewhere
            if left:
                _remove_on_executors(self._data.sparkSession, left)
            self._stage.close()
            self._stage = None


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
