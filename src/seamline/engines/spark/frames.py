"""Shards as the rows of a data frame, those of one shard in one partition: for sessions that have no RDDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seamline.core import chain as chains
from seamline.core.chain import Chain, Gathered, Outcome, Pair, Scattering
from seamline.core.collection import Collection, Function, Gather, Scatter
from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.packet import Packet
from seamline.engines.spark import rows, shards, slots
from seamline.engines.spark.boot import remote_frame
from seamline.engines.spark.job import reason
from seamline.engines.spark.rows import COLUMNS, Row
from seamline.engines.spark.session import quiet

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RETRIES = 2


class FrameCollection:
    """A frame with a row for each leaf of a shard, as bytes that only our own code opens."""

    def __init__(self, frame: DataFrame, count: int, chain: Chain, *, kept: bool = False) -> None:
        self._frame = frame
        self._count = count
        self._chain = chain
        self._kept = kept

    @classmethod
    def of(cls, session: SparkSession, values: Sequence[Any]) -> FrameCollection:
        packed = [shards.pickled(Outcome(value), f"item {index}") for index, value in enumerate(values)]
        with quiet():
            frame = session.createDataFrame(
                rows.table([Row(number, 0, leaf) for number, leaf in enumerate(packed)]), COLUMNS
            )
        return cls(_apart(frame, len(packed)), len(packed), Chain())

    @property
    def count(self) -> int:
        return self._count

    def map(self, function: Function) -> FrameCollection:
        return FrameCollection(self._frame, self._count, self._chain.then(function))

    def zip(self, other: Collection) -> FrameCollection:
        if not isinstance(other, FrameCollection):
            raise TypeError("shards of two engines cannot be zipped; make both in the same context")
        behind = other._frame.withColumn("place", other._frame["place"] + self._chain.start.width)
        both = _apart(self._frame.union(behind), self._count)
        return FrameCollection(both, self._count, Chain(Pair(self._chain, other._chain)))

    def exchange(self, scatter: Scatter, count: int, gather: Gather) -> FrameCollection:
        pieces = _sent(self._frame, rows.scatter, Scattering(self._chain, scatter, count))
        return FrameCollection(_apart(pieces, count), count, Chain(Gathered(gather, self._count)))

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        chosen = list(range(self._count)) if numbers is None else list(numbers)
        if not chosen:
            return []
        wanted = self._frame if numbers is None else self._frame.where(self._frame["shard"].isin(chosen))
        found = _run(FrameCollection(wanted, self._count, self._chain)._outcomes())
        try:
            return chains.values([found[number] for number in chosen])
        except SeamlineError:
            self.release()  # what has failed may be tried again
            raise

    def keep(self) -> FrameCollection:
        if self._kept:
            return self
        from pyspark import StorageLevel

        kept = self._outcomes().persist(StorageLevel.MEMORY_AND_DISK)
        return FrameCollection(kept, self._count, Chain(), kept=True)

    def release(self) -> None:
        if self._kept:
            self._frame.unpersist()

    def tables(self, schema: Any) -> DataFrame:
        """The Arrow tables that the shards are, with columns in types that Spark has; a failure is the task's."""
        from pyspark.sql.pandas.types import from_arrow_schema

        plain = shards.plain_schema(schema)
        cast = self.map(shards.Cast(plain.serialize().to_pybytes()))
        with quiet():
            return cast._outcomes().mapInArrow(remote_frame(rows.tables, None), from_arrow_schema(plain))

    def _outcomes(self) -> DataFrame:
        return self._frame if self._chain.idle else _sent(self._frame, rows.run_chain, self._chain)


def adopted(frame: DataFrame) -> FrameCollection:
    """The partitions of a frame as Arrow tables, read at once and kept: only then is it known how many there are."""
    with quiet():
        schema = frame.limit(0).toArrow().schema.serialize().to_pybytes()
        read = frame.mapInArrow(remote_frame(rows.adopt, schema), COLUMNS).persist()
        found = sorted(row["shard"] for row in read.select("shard").collect())
    if found != list(range(len(found))):  # Spark asks nobody about partitions without rows
        from pyspark.sql import functions

        place = functions.array_position(functions.array(*map(functions.lit, found)), read["shard"])
        numbered = read.withColumn("shard", (place - 1).cast("int"))
        return FrameCollection(numbered, len(found), Chain())
    return FrameCollection(read, len(found), Chain(), kept=True)


def native(session: SparkSession, tables: Collection, schema: Any) -> DataFrame:
    """A frame whose partitions are these tables; they are first brought to Spark if they are elsewhere."""
    here = tables if isinstance(tables, FrameCollection) else FrameCollection.of(session, tables.collect())
    return here.tables(schema)


def _apart(frame: DataFrame, count: int) -> DataFrame:
    """Each shard's rows in the partition of its number."""
    return frame.repartitionById(max(1, count), "shard")


def _sent(frame: DataFrame, entry: Any, work: object) -> DataFrame:
    body = Packet.of(work, "the function").parts
    with quiet():
        return frame.mapInArrow(remote_frame(entry, body), COLUMNS)


def _run(frame: DataFrame) -> dict[int, Outcome]:
    """The outcome of each shard; in local mode Spark gives a whole job up when it loses one process."""
    tries = 1 if slots.retries_tasks(frame.sparkSession.conf.get) else 1 + _RETRIES
    for left in reversed(range(tries)):
        try:
            with quiet():
                found = frame.select("shard", "leaf").toArrow()
            pairs = zip(found["shard"].to_pylist(), found["leaf"], strict=True)
            return {number: shards.opened(leaf.as_buffer()) for number, leaf in pairs}
        except Exception as error:
            if not type(error).__module__.startswith(("grpc", "pyspark")):
                raise
            if not left:
                raise WorkerError(None, f"Spark gave up: {reason(str(error))}") from error
    raise AssertionError("unreachable")
