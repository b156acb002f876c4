"""Workers as the tasks of one Spark barrier stage, and tasks that never meet as ordinary Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamline.core import machine
from seamline.core.collection import Collection
from seamline.core.engine import Block, Item, Listener, Result, Shard, Value
from seamline.core.errors import SeamlineError, UnavailableError
from seamline.core.output import Teller, print_with_rank
from seamline.core.packet import Packet
from seamline.core.world import World
from seamline.engines.spark import broadcast, slots, tasks
from seamline.engines.spark.boot import remote
from seamline.engines.spark.broadcast import SparkBroadcast
from seamline.engines.spark.collection import SparkCollection, adopted, native
from seamline.engines.spark.gang import Gang
from seamline.engines.spark.java import java_home
from seamline.engines.spark.job import Job
from seamline.engines.spark.keeper import Orders, keep
from seamline.engines.spark.session import active, pyspark_session
from seamline.engines.spark.session import start as start_session

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


class SparkEngine:
    """Run workers on the executors of a Spark session.

    ``session`` is used and left running; without one it is the active session, or one that is started with ``conf``
    and stopped by ``close``. ``threads`` is the number of compute threads of each worker, by default the cores of its
    task (in local mode this machine's cores divided by the workers); ``task_cores`` asks Spark for that many cores for
    each worker. After ``timeout_s`` seconds a run is stopped with ``RunTimeoutError``. For ``slots_within_s`` seconds a
    run waits until there is room for it. ``tell`` gets each line that a worker prints.
    """

    name = "spark"

    def __init__(
        self,
        session: SparkSession | None = None,
        *,
        conf: dict[str, str] | None = None,
        threads: int | None = None,
        task_cores: int | None = None,
        timeout_s: float | None = None,
        slots_within_s: float = 10.0,
        tell: Teller = print_with_rank,
    ) -> None:
        self._session = session
        self._conf = conf or {}
        self._ours = False
        self._threads = threads
        self._task_cores = task_cores
        self._known_profile: Any = None
        self._timeout_s = timeout_s
        self._slots_within_s = slots_within_s
        self._tell = tell

    @staticmethod
    def missing() -> str | None:
        """Why Spark cannot start here, as far as pyspark and Java tell."""
        try:
            pyspark_session()
            java_home()
        except UnavailableError as error:
            return str(error)
        return None

    @property
    def session(self) -> SparkSession:
        """The session in use; one is started where there is none."""
        if self._session is None:
            self._session = active()
            if self._session is None:
                self._session = start_session(self._conf)
                self._ours = True
        return self._session

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
    ) -> list[Result]:
        if not shards:
            return []
        with broadcast.used() as broadcasts:
            work = [Packet.of(task, "the task", copy=False)]
            work += [Packet.of(shard, f"shard {rank}", copy=False) for rank, shard in enumerate(shards)]
        context = self.session.sparkContext
        profile = self._profile(context)
        slots.wait_for(context, len(shards), profile and profile._java_resource_profile, self._slots_within_s)
        gang = Gang(*slots.addresses(context), work, listen, self._tell)
        job = None
        try:
            variables = self._variables(context, len(shards))
            orders = Orders(gang.hub.address, gang.hub.token, len(shards), variables, str(Path.cwd()))
            job = _barrier_job(context, len(shards), profile, remote(keep, orders, list(broadcasts.values())))
            return gang.serve(job, self._timeout_s)
        finally:
            gang.stop(job)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        return tasks.map(self.session.sparkContext, function, list(items), retries)

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        return tasks.exchange(self.session.sparkContext, produce, list(items), consume)

    def broadcast(self, value: Value) -> SparkBroadcast[Value]:
        return broadcast.share(self.session.sparkContext, value)

    def collection(self, items: Sequence[Any]) -> SparkCollection:
        return SparkCollection.of(self.session.sparkContext, items)

    def adopt(self, table: Any) -> SparkCollection:
        """The partitions of a Spark DataFrame as Arrow tables."""
        return adopted(table)

    def native(self, tables: Collection, schema: Any) -> Any:
        """A Spark DataFrame."""
        return native(self.session, tables, schema)

    def close(self) -> None:
        """Stop the session if this engine has started it."""
        if self._ours and self._session is not None:
            self._session.stop()
            self._session = None
            self._ours = False

    def _profile(self, context: SparkContext) -> Any:
        if self._task_cores is None:
            return None
        if slots.is_local(context):
            raise SeamlineError(
                f"task_cores={self._task_cores} needs a cluster, and Spark runs in local mode; "
                "leave it out, or connect to a cluster"
            )
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        if self._known_profile is None:
            builder: Any = ResourceProfileBuilder()
            self._known_profile = builder.require(TaskResourceRequests().cpus(self._task_cores)).build
            slots.announce(context, self._known_profile._java_resource_profile)
        return self._known_profile

    def _variables(self, context: SparkContext, size: int) -> dict[str, str]:
        """Thread variables for each worker: the user's own from here or for the executors, else the number it has."""
        conf = context.getConf()
        threads = self._threads or self._task_cores or int(conf.get("spark.task.cpus", "1") or 1)
        if self._threads is None and slots.is_local(context):
            threads = machine.cores().threads(size)
        ours = machine.worker_variables(threads)
        return {name: conf.get(f"spark.executorEnv.{name}") or value for name, value in ours.items()}


def _barrier_job(context: SparkContext, size: int, profile: Any, function: Callable[..., Iterator[Any]]) -> Job:
    workers: Any = context.parallelize(range(size), size)
    if profile is not None:
        workers = workers.withResources(profile)
    return Job(context, f"seamline: {size} workers", workers.barrier().mapPartitionsWithIndex(function).collect)
