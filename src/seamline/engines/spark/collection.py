"""Shards as the partitions of an RDD, one in each; what is exchanged goes through Spark's shuffle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seamline.core import chain as chains
from seamline.core import pickling
from seamline.core.chain import Chain, Gathered, Outcome, Pair, Scattering
from seamline.core.collection import Collection, Function, Gather, Scatter
from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.packet import Packet
from seamline.engines.spark import broadcast, shards, slots
from seamline.engines.spark.boot import Entry, remote
from seamline.engines.spark.job import reason
from seamline.engines.spark.session import quiet

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_RETRIES = 2


class SparkCollection:
    """One record in each partition: the leaves of a shard, as bytes that only our own code opens."""

    def __init__(self, rdd: Any, count: int, chain: Chain, *, kept: bool = False) -> None:
        self._rdd = rdd
        self._count = count
        self._chain = chain
        self._kept = kept

    @classmethod
    def of(cls, context: SparkContext, values: Sequence[Any]) -> SparkCollection:
        leaves = [(pickling.dumps(Outcome(value), f"item {index}"),) for index, value in enumerate(values)]
        return cls(context.parallelize(leaves, max(1, len(leaves))), len(leaves), Chain())

    @property
    def count(self) -> int:
        return self._count

    def map(self, function: Function) -> SparkCollection:
        return SparkCollection(self._rdd, self._count, self._chain.then(function))

    def zip(self, other: Collection) -> SparkCollection:
        if not isinstance(other, SparkCollection):
            raise TypeError("shards of two engines cannot be zipped; make both in the same context")
        return SparkCollection(self._rdd.zip(other._rdd), self._count, Chain(Pair(self._chain, other._chain)))

    def exchange(self, scatter: Scatter, count: int, gather: Gather) -> SparkCollection:
        pieces = self._rdd.mapPartitionsWithIndex(
            _sent(shards.scatter_pieces, Scattering(self._chain, scatter, count), "the function")
        )
        leaves = pieces.partitionBy(count, int).mapPartitionsWithIndex(remote(shards.leaves, self._count, []))
        return SparkCollection(leaves, count, Chain(Gathered(gather, self._count)))

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        chosen = list(range(self._count)) if numbers is None else list(numbers)
        outcomes = [shards.opened(record[0]) for record in run(self._outcomes(), chosen)]
        try:
            return chains.values(outcomes)
        except SeamlineError:
            self.release()  # what has failed may be tried again
            raise

    def keep(self) -> SparkCollection:
        if self._kept:
            return self
        from pyspark import StorageLevel

        rdd = self._outcomes()
        kept = (
            rdd if rdd is not self._rdd else rdd.mapPartitions(iter)
        )  # the source's own storage is not ours to choose
        return SparkCollection(kept.persist(StorageLevel.MEMORY_AND_DISK), self._count, Chain(), kept=True)

    def release(self) -> None:
        if self._kept:
            self._rdd.unpersist()

    def streams(self) -> Any:
        """An RDD of Arrow streams, for Arrow tables; a failure is the task's."""
        return self._outcomes().mapPartitionsWithIndex(remote(shards.write_streams, None, []))

    def _outcomes(self) -> Any:
        if self._chain.idle:
            return self._rdd
        return self._rdd.mapPartitionsWithIndex(_sent(shards.run_chain, self._chain, "the function"))


def adopted(frame: DataFrame) -> SparkCollection:
    """The partitions of a DataFrame as Arrow tables; batches stay columns on all of the way."""
    with quiet():
        schema = frame.limit(0).toArrow().schema.serialize().to_pybytes()
        streams: Any = frame.mapInArrow(shards.to_streams, "stream binary").rdd
    tables = streams.mapPartitionsWithIndex(remote(shards.read_streams, schema, []))
    return SparkCollection(tables, tables.getNumPartitions(), Chain())


def native(session: SparkSession, tables: Collection, schema: Any) -> DataFrame:
    """A DataFrame whose partitions are these tables; they are first brought to Spark if they are elsewhere."""
    if not isinstance(tables, SparkCollection):
        tables = SparkCollection.of(session.sparkContext, tables.collect())
    plain = shards.plain_schema(schema)
    cast = tables.map(shards.Cast(plain.serialize().to_pybytes()))
    with quiet():
        from pyspark.sql.pandas.types import from_arrow_schema

        streams = session.createDataFrame(cast.streams(), "stream binary", verifySchema=False)
        return streams.mapInArrow(shards.from_streams, from_arrow_schema(plain))


def run(rdd: Any, partitions: list[int]) -> list[Any]:
    """The only record of each of these partitions."""
    if not partitions:
        return []
    records: list[Any] = _run(rdd, partitions, 0 if slots.retries_tasks(rdd.context._conf.get) else _RETRIES)
    for record in records:
        if isinstance(record, str):  # what a Python that lacks our package has to say
            raise SeamlineError(record)
    return records


def _run(rdd: Any, partitions: list[int], retries: int) -> Any:
    """In local mode Spark gives a whole job up when it loses one process, so it is started again here.

    What a function raises is not seen by Spark: it is one of the records.
    """
    try:
        return rdd.context.runJob(rdd, list, partitions)
    except Exception as error:
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        if not retries:
            raise WorkerError(None, f"Spark gave up: {reason(str(error))}") from error
    return _run(rdd, partitions, retries - 1)


def _sent(entry: Entry, work: object, what: str) -> Any:
    with broadcast.used() as broadcasts:
        body = Packet.of(work, what).parts
    return remote(entry, body, list(broadcasts.values()))
