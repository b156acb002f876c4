"""A Spark session as a cluster: the one there is, one of our own, or the one that the program was submitted with."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from seamline.core import machine, registry
from seamline.core.cluster import Capacity
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError
from seamline.core.size import in_bytes, in_words
from seamline.engines.spark import slots
from seamline.engines.spark.access import access_to
from seamline.engines.spark.cluster import StandaloneCluster, spark_home
from seamline.engines.spark.java import java_home
from seamline.engines.spark.session import active, start, submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXECUTORS_WITHIN_S = 60.0
_PYTHONS_SHARE = 0.3
"""Less than this part of a container outside the JVM is not enough for a worker that trains."""


class SparkCluster:
    """Workers in the executors of a session; ``close`` undoes what was done to get it."""

    remote = True

    def __init__(self, session: SparkSession, origin: str, undo: Sequence[Callable[[], object]] = ()) -> None:
        self._session = session
        self._access = access_to(session)
        self._origin = origin
        self._undo = list(undo)
        self._engines: dict[int, Engine] = {}

    @property
    def description(self) -> str:
        return f"Spark {self._access.version} at {self._master}, {self._origin}"

    @property
    def handles(self) -> Mapping[str, Any]:
        return {"spark": self._session}

    def engine(self, workers: int) -> Engine:
        """Workers share the cores of their nodes, also those that Spark counts for tasks that do not run meanwhile."""
        if workers not in self._engines:
            capacity = self.capacity()
            threads = max(1, capacity.nodes * capacity.cores_per_node // workers)
            self._engines[workers] = registry.engine("spark", session=self._session, threads=threads)
        return self._engines[workers]

    def capacity(self) -> Capacity:
        local = slots.is_local(self._conf)
        nodes = max(1, self._access.executors())
        room = self._access.slots()
        return Capacity(
            nodes=nodes,
            slots=room,
            cores_per_node=max(1, room * int(self._conf("spark.task.cpus", "1")) // nodes),
            memory_bytes=None if local else self._container_bytes(),
            elastic=not local and self._conf("spark.dynamicAllocation.enabled", "false") == "true",
        )

    def mend(self) -> None:
        """Spark replaces its executors itself."""

    def warnings(self) -> list[str]:
        if not self._master.startswith(("yarn", "k8s")):
            return []
        heap, whole = in_bytes(self._conf("spark.executor.memory", "1g")), self._container_bytes()
        if 1 - heap / whole >= _PYTHONS_SHARE:
            return []
        outside = in_words(whole - heap)
        advice = "start the session with a larger spark.executor.memoryOverhead"
        return [f"an executor has {outside} outside its JVM, and that is where workers train; {advice}"]

    def close(self) -> None:
        while self._engines:
            self._engines.popitem()[1].close()
        while self._undo:
            self._undo.pop()()

    @property
    def _master(self) -> str:
        return self._conf("spark.master", "")

    def _conf(self, key: str, default: str) -> str:
        return self._access.setting(key, default)

    def _container_bytes(self) -> int:
        heap = in_bytes(self._conf("spark.executor.memory", "1g"))
        factor = float(self._conf("spark.executor.memoryOverheadFactor", "0.1"))
        overhead = self._conf("spark.executor.memoryOverhead", "")
        return heap + (in_bytes(overhead) if overhead else max(384 * 2**20, int(heap * factor)))


def open_session(*, conf: Mapping[str, str], variables: Mapping[str, str], nodes: int | None = None) -> SparkCluster:
    """The session that this process has, or a new one with these settings, once its executors are there."""
    there = active()
    if there is not None:
        return SparkCluster(there, "started by this program")
    with machine.variables_set(variables):
        session = start(conf)
    _await_executors(session, nodes)
    return SparkCluster(session, "started here", [session.stop])


def open_standalone(*, conf: Mapping[str, str], nodes: int, cores: int, memory: str) -> SparkCluster:
    """A master, workers and a session of our own on this machine, unless this process has a session."""
    there = active()
    if there is not None:
        return SparkCluster(there, "started by this program")
    cluster = StandaloneCluster(workers=nodes, cores_per_worker=cores, memory=memory)
    try:
        session = start({**conf, **cluster.conf})
        _await_executors(session, nodes)
    except BaseException:
        cluster.stop()
        raise
    return SparkCluster(session, "started here with its master and workers", [cluster.stop, session.stop])


def open_submitted() -> SparkCluster:
    """The session of a program that ``spark-submit`` runs; whoever submitted it decides its settings."""
    there = active()
    if there is not None:
        return SparkCluster(there, "started by this program")
    if not submitted():
        raise SeamlineError(
            "this program was not started by spark-submit; run it as `spark-submit program.py`, or choose a mode "
            "that starts Spark: init_orca_context('spark')"
        )
    from pyspark.sql import SparkSession

    session = SparkSession.builder.getOrCreate()  # not with settings of ours: spark-submit was given its own
    return SparkCluster(session, "as submitted", [session.stop])


def submit_program(*, arguments: Sequence[str], variables: Mapping[str, str], program: Sequence[str]) -> NoReturn:
    """Let ``spark-submit`` run a program whose driver is on the cluster, and end as it ends.

    The program meets this line again there; nothing is left to do here once it has run.
    """
    script = spark_home() / "bin" / "spark-submit"
    ours = machine.environment({"JAVA_HOME": str(java_home()), **variables})
    environment = {"PYSPARK_PYTHON": sys.executable, **ours}
    raise SystemExit(subprocess.run([str(script), *arguments, *program], env=environment, check=False).returncode)


def _await_executors(session: SparkSession, nodes: int | None) -> None:
    """Give executors time to come; whether they are enough is found out when it is known how many are needed."""
    access = access_to(session)
    deadline = time.monotonic() + _EXECUTORS_WITHIN_S
    while nodes and access.executors() < nodes and time.monotonic() < deadline:
        time.sleep(0.1)
