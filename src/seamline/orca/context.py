"""The cluster that a program works on: opened once, used by every ``Estimator``, and closed again."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

from seamline.core.cluster import Capacity, Cluster
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError
from seamline.orca import cluster_conf, modes, preflight
from seamline.orca.preflight import PreflightWarning, Report

_active: OrcaContext | None = None
_changing = threading.Lock()


class OrcaContext:
    """What ``init_orca_context`` has opened; usable in ``with``, which closes it at the end."""

    def __init__(self, mode: str, cluster: Cluster) -> None:
        self.mode = mode
        self._cluster = cluster
        self._process = os.getpid()
        self._warned: set[str] = set()
        self._asked = 0

    def __repr__(self) -> str:
        return f"<OrcaContext {self.mode}: {self._cluster.description}>"

    def __enter__(self) -> OrcaContext:
        return self

    def __exit__(self, *_: object) -> None:
        if OrcaContext.current() is self:
            stop_orca_context()

    @staticmethod
    def current() -> OrcaContext | None:
        """The active context of this process, or ``None``."""
        return _active if _active is not None and _active._process == os.getpid() else None

    @classmethod
    def get_spark_session(cls) -> Any:
        """The SparkSession of the active context."""
        return cls._handle("spark", "a Spark session", "init_orca_context('spark')")

    @classmethod
    def get_ray_context(cls) -> Any:
        """Ray's runtime context: its ``gcs_address`` is where others connect to the Ray of the active context."""
        return cls._handle("ray", "a Ray connection", "init_orca_context('ray')")

    @classmethod
    def _handle(cls, library: str, what: str, advice: str) -> Any:
        context = cls.current()
        if context is None:
            raise SeamlineError(f"there is no context, so there is not {what}; {advice} gives one")
        if library not in context._cluster.handles:
            raise SeamlineError(f"a context of mode {context.mode} does not have {what}; {advice} gives one")
        return context._cluster.handles[library]

    @property
    def capacity(self) -> Capacity:
        """Nodes, slots, cores and memory that there are now."""
        return self._cluster.capacity()

    def has_room(self, workers: int) -> bool:
        """Whether so many workers can run at once; on this machine they always can, if slowly."""
        return not self._cluster.remote or workers <= self._cluster.capacity().slots

    def mend(self) -> None:
        """After a loss: start again what has ended of the cluster itself."""
        self._cluster.mend()

    def default_workers(self) -> int:
        """One worker for each node, which computes with all of the node's cores."""
        return self._cluster.capacity().nodes if self._cluster.remote else 1

    def engine(self, workers: int) -> Engine:
        """The engine that runs this many workers here."""
        return self._cluster.engine(workers)

    def check(self, workers: int | None = None, task: Callable[..., Any] | None = None) -> Report:
        """Look for everything that would make a run fail, before one starts; asks every worker anew."""
        return preflight.examine(self._cluster, workers or self.default_workers(), task)

    def prepare(self, workers: int, task: Callable[..., Any]) -> None:
        """What every run does first: refuse what cannot work, with all reasons, and warn once of what may hurt.

        Workers are asked for their environment only when there are more of them than were ever asked.
        """
        if not self._cluster.remote:
            return
        report = preflight.examine(self._cluster, workers, task, ask=workers > self._asked)
        report.require()
        self._asked = max(self._asked, workers)
        for text in report.warnings:
            if text not in self._warned:
                self._warned.add(text)
                warnings.warn(text, PreflightWarning, stacklevel=4)

    def stop(self) -> None:
        """Stop what was started for this context; what was there before goes on. Twice is as good as once."""
        if self._process == os.getpid():  # not in a process that was forked from the driver
            self._cluster.close()


def init_orca_context(
    cluster_mode: str = "local",
    cores: int | None = None,
    memory: str | None = None,
    num_nodes: int = 1,
    *,
    init_ray_on_spark: bool = False,
    **options: Any,
) -> OrcaContext:
    """Open the cluster that every ``Estimator`` of this program then works on.

    ``cores`` and ``memory`` are those of each of ``num_nodes`` nodes. Modes are ``local``, ``spark`` or ``local[n]``,
    ``standalone``, ``yarn-client``, ``yarn-cluster``, ``k8s-client``, ``k8s-cluster``, ``spark-submit``, ``ray`` and
    ``ray-on-spark``; ``docs/clusters.md`` has the options of each. ``init_ray_on_spark`` starts Ray in the executors of
    any Spark mode. A Spark session or Ray connection that this process
    has already is used, and left running at the end.
    """
    global _active
    mode, implied = modes.named(cluster_mode)
    sizes: dict[str, Any] = {"cores": cores, "memory": memory, "num_nodes": num_nodes}
    said = {name: value for name, value in sizes.items() if value is not None}
    for name in ("cores", "num_nodes"):
        if name in said:
            cluster_conf.count(name, said[name])
    with _changing:
        there = OrcaContext.current()
        if there is not None:
            raise SeamlineError(
                f"a context of mode {there.mode} is active; call stop_orca_context() first, or open it with "
                "`with init_orca_context(...):`, which stops it at the end"
            )
        cluster = mode.start(**said, **implied, **options)
        _active = OrcaContext(cluster_mode, modes.with_ray(cluster) if init_ray_on_spark else cluster)
        return _active


def stop_orca_context() -> None:
    """Stop what ``init_orca_context`` has started; without a context it does nothing."""
    global _active
    with _changing:
        there, _active = OrcaContext.current(), None
    if there is not None:
        there.stop()


atexit.register(stop_orca_context)
