"""A session with a JVM in this process: jobs on RDDs, which start sooner than those of data frames."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from seamline.core.collection import Collection
from seamline.core.engine import Value
from seamline.engines.spark import broadcast, slots
from seamline.engines.spark.boot import remote
from seamline.engines.spark.broadcast import SparkBroadcast
from seamline.engines.spark.collection import SparkCollection, adopted, native
from seamline.engines.spark.job import Job
from seamline.engines.spark.keeper import Orders, keep
from seamline.engines.spark.task import TaskOrders, Work, consume_blocks, map_item, produce_blocks

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


class ClassicAccess:
    """What there is to know and to start through the ``SparkContext``."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = session.sparkContext
        self._settings: dict[str, str] = dict(self._context.getConf().getAll())  # each look costs many calls

    @property
    def here(self) -> bool:
        return slots.is_local(self.setting)

    @property
    def version(self) -> str:
        return str(self._context.version)

    @property
    def addresses(self) -> tuple[str, str]:
        host = self.setting("spark.driver.host", "127.0.0.1")
        bind = self.setting("spark.driver.bindAddress", host)
        everywhere = bind in ("0.0.0.0", "::", "")
        return (host if everywhere else bind), host

    def setting(self, key: str, default: str) -> str:
        return self._settings.get(key, default)

    def executors(self) -> int:
        if self.here:
            return 1
        return int(self._scala.schedulerBackend().getExecutorIds().size())  # those whose slots count

    def slots(self, profile: Any = None) -> int:
        default = self._scala.resourceProfileManager().defaultResourceProfile
        return int(self._scala.maxNumConcurrentTasks(profile._java_resource_profile if profile else default()))

    def busy(self) -> int:
        running = self._scala.statusTracker().getExecutorInfos()
        return sum(int(executor.numRunningTasks()) for executor in running)

    def profile(self, cores: int) -> Any:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        builder: Any = ResourceProfileBuilder()
        made = builder.require(TaskResourceRequests().cpus(cores)).build
        self._scala.resourceProfileManager().addResourceProfile(made._java_resource_profile)  # so that slots know it
        return made

    def gang(self, orders: Orders, broadcasts: Sequence[Any], profile: Any) -> Job:
        workers: Any = self._context.parallelize(range(orders.size), orders.size)
        if profile is not None:
            workers = workers.withResources(profile)
        keepers = workers.barrier().mapPartitionsWithIndex(remote(keep, orders, list(broadcasts)))
        return self._start(f"{orders.size} workers", keepers.collect)

    def map(self, orders: TaskOrders, work: Work, numbers: list[int]) -> Job:
        data: Any = self._context.parallelize([(number, work.items[number]) for number in numbers], len(numbers))
        mapped = data.mapPartitionsWithIndex(remote(map_item, orders.given(work), work.broadcasts))
        return self._start(f"{len(numbers)} tasks", mapped.collect)

    def exchange(self, orders: TaskOrders, work: Work) -> Job:
        size = len(work.items)
        data: Any = self._context.parallelize(list(enumerate(work.items)), size)
        given = data.mapPartitionsWithIndex(remote(produce_blocks, orders.given(work), work.broadcasts))
        taken = given.partitionBy(size, _itself)
        consumed = taken.mapPartitionsWithIndex(remote(consume_blocks, orders.given(work), work.broadcasts))
        return self._start(f"{size} tasks", consumed.collect)

    def share(self, value: Value) -> SparkBroadcast[Value]:
        return broadcast.share(self._context, value)

    def collection(self, values: Sequence[Any]) -> SparkCollection:
        return SparkCollection.of(self._context, values)

    def adopt(self, frame: DataFrame) -> SparkCollection:
        return adopted(frame)

    def native(self, tables: Collection, schema: Any) -> DataFrame:
        return native(self._session, tables, schema)

    def close(self) -> None:
        """Nothing is held here: Spark holds what was shared."""

    @property
    def _scala(self) -> Any:
        return self._context._jsc.sc()

    def _start(self, what: str, action: Callable[[], Any]) -> Job:
        return Job(_JobGroup(self._context, f"seamline: {what}"), action)


class _JobGroup:
    """A job group of one job."""

    def __init__(self, context: SparkContext, what: str) -> None:
        self._context = context
        self._what = what
        self._name = f"seamline-{secrets.token_hex(8)}"

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        from pyspark import InheritableThread

        return InheritableThread(target=target)

    def put(self) -> None:
        self._context.setJobGroup(self._name, self._what, interruptOnCancel=True)

    def cancel(self) -> None:
        self._context.cancelJobGroup(self._name)

    def session_lost(self, error: Exception) -> str | None:
        from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

        if isinstance(error, (OSError, Py4JNetworkError)):
            return "the JVM of the Spark session has ended or was killed; start the program again"
        return None


def _itself(number: int) -> int:
    return number
