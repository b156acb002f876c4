"""Workers as the tasks of one Spark barrier stage, and tasks that never meet as ordinary Spark jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamline.core import machine
from seamline.core.collection import Collection
from seamline.core.engine import Block, Broadcast, Item, Listener, Replace, Result, Shard, Value
from seamline.core.errors import SeamlineError, UnavailableError
from seamline.core.nursery import Libraries
from seamline.core.output import Teller, print_with_rank
from seamline.core.packet import Packet
from seamline.core.world import World
from seamline.engines.spark import broadcast, slots, tasks
from seamline.engines.spark.access import Access, access_to
from seamline.engines.spark.gang import Gang
from seamline.engines.spark.java import java_home
from seamline.engines.spark.keeper import Orders
from seamline.engines.spark.session import active, pyspark_session
from seamline.engines.spark.session import start as start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkEngine:
    """Run workers on the executors of a Spark session.

    ``session`` is used and left running, also one of Spark Connect; without one it is the active session, or one that
    is started with ``conf`` (at a Spark Connect server with ``spark.remote``) and stopped by ``close``. ``threads`` is
    the number of compute threads of each worker, by default the cores of its task (in local mode this machine's cores
    divided by the workers); ``task_cores`` asks Spark for that many cores for each worker. After ``timeout_s`` seconds
    a run is stopped with ``RunTimeoutError``. For ``slots_within_s`` seconds a run waits until there is room for it.
    ``tell`` gets each line that a worker prints.
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
        self._known_access: Access | None = None
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
        replace: Replace | None = None,
    ) -> list[Result]:
        if not shards:
            return []
        with broadcast.used() as broadcasts:
            work = [Packet.of(task, "the task", copy=False)]
            work += [Packet.of(shard, f"shard {rank}", copy=False) for rank, shard in enumerate(shards)]
        access = self._access
        profile = self._profile(access)
        slots.wait_for(access, len(shards), profile, self._slots_within_s)
        gang = Gang(*access.addresses, work, listen, self._tell)
        job = None
        try:
            orders = Orders(
                gang.hub.address,
                gang.hub.token,
                len(shards),
                self._variables(access, len(shards)),
                Libraries.of_this_process(),
                str(Path.cwd()),
            )
            job = access.gang(orders, list(broadcasts.values()), profile)
            return gang.serve(job, self._timeout_s)
        finally:
            gang.stop(job)

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        return tasks.map(self._access, function, list(items), retries)

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        return tasks.exchange(self._access, produce, list(items), consume)

    def broadcast(self, value: Value) -> Broadcast[Value]:
        return self._access.share(value)

    def collection(self, items: Sequence[Any]) -> Collection:
        return self._access.collection(items)

    def adopt(self, table: Any) -> Collection:
        """The partitions of a Spark DataFrame as Arrow tables."""
        return self._access.adopt(table)

    def native(self, tables: Collection, schema: Any) -> Any:
        """A Spark DataFrame."""
        return self._access.native(tables, schema)

    def close(self) -> None:
        """Stop the session if this engine has started it."""
        if self._known_access is not None:
            self._known_access.close()
            self._known_access = None
        if self._ours and self._session is not None:
            self._session.stop()
            self._session = None
            self._ours = False

    @property
    def _access(self) -> Access:
        if self._known_access is None:
            self._known_access = access_to(self.session)
        return self._known_access

    def _profile(self, access: Access) -> Any:
        if self._task_cores is None:
            return None
        if slots.is_local(access.setting):
            raise SeamlineError(
                f"task_cores={self._task_cores} needs a cluster, and Spark runs in local mode; "
                "leave it out, or connect to a cluster"
            )
        if self._known_profile is None:
            self._known_profile = access.profile(self._task_cores)
        return self._known_profile

    def _variables(self, access: Access, size: int) -> dict[str, str]:
        """Thread variables for each worker: the user's own from here or for the executors, else the number it has."""
        threads = self._threads or self._task_cores or int(access.setting("spark.task.cpus", "1") or 1)
        if self._threads is None and access.here:
            threads = machine.cores().threads(size)
        ours = machine.worker_variables(threads)
        return {name: access.setting(f"spark.executorEnv.{name}", "") or value for name, value in ours.items()}
