"""The Ray that an engine uses: the one this program is connected to already, a running one, or its own."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import ray
from ray._private import ray_constants, ray_logging

from seamline.core import machine
from seamline.core.errors import SeamlineError, WorkerLostError
from seamline.engines.guard import Guard
from seamline.engines.ray import forks
from seamline.engines.ray.broadcast import forget_all

_MARK = "SEAMLINE_RAY"
_USAGE_STATS = "RAY_USAGE_STATS_ENABLED"
_DEDUPLICATION = "RAY_DEDUP_LOGS"
SYSTEM = {"enable_metrics_collection": False, "task_events_shutdown_flush_timeout_ms": 500}
"""For a Ray that we start: no statistics, and no five seconds for one that has ended to take them."""
_STORE_AT_MOST = 4 << 30
_LONGEST = 28
"""Of the 107 characters that the name of a socket may have, Ray and we need the others."""


class Cluster:
    """Connects when first used, and disconnects only from what it has connected to."""

    def __init__(
        self,
        address: str | None,
        cores: int | None,
        options: Mapping[str, Any],
        check: Callable[[], None] | None = None,
    ) -> None:
        if address is not None and cores is not None:
            raise ValueError(f"cores={cores} is for a Ray of our own; the one at {address!r} has the cores it has")
        self._address = address
        self._cores = cores
        self._options = options
        self._check = check
        self._connected = False
        self._raylet: psutil.Process | None = None
        self._guard: Guard | None = None

    @property
    def ours(self) -> bool:
        """Whether this Ray runs on this machine because we started it."""
        return self._raylet is not None

    def connect(self) -> None:
        if self._check is not None:
            self._check()
        if ray.is_initialized():
            return
        self.close()  # somebody else may have shut our Ray down
        forget_all()
        options = {"logging_level": "ERROR", **self._options}
        if self._address is not None or machine.set_by_user("RAY_ADDRESS"):
            ray.init(address=self._address, **options)
        else:
            self._start(options)
        self._connected = True

    def check_alive(self) -> None:
        """Raise if our Ray's node process is gone: Ray itself finds that out only after a quarter of a minute."""
        if self._check is not None:
            self._check()
        if self._raylet is None or (self._raylet.is_running() and self._raylet.status() != psutil.STATUS_ZOMBIE):
            return
        raise WorkerLostError(None, "Ray's node process (raylet) has ended or was killed;\nstart the program again")

    def lives(self) -> bool:
        """Whether Ray can still be asked: one that has ended may keep whoever asks waiting for a minute."""
        try:
            self.check_alive()
        except SeamlineError:
            return False
        return ray.is_initialized()

    def mend(self) -> None:
        """Start a Ray of our own again if it has ended; what lay in its store is lost."""
        if self.ours and not self.lives():
            self.close()
            self.connect()

    def check_room(self, workers: int, cpus_each: float) -> None:
        """Raise if the cluster could never start that many workers."""
        if workers * cpus_each > _cpus()[0]:
            raise TooFewCpusError.asking(workers, cpus_each)

    def close(self) -> None:
        if self._connected and ray.is_initialized():
            ray.shutdown()
        if self._guard is not None:
            self._guard.close()
            forks.end()
        self._connected = False
        self._raylet = self._guard = None

    def _start(self, options: Mapping[str, Any]) -> None:
        """A Ray of our own. Its helpers would outlive a driver that is killed by a minute, so they get a guard."""
        before = set(psutil.Process().children(recursive=True))
        folder = make_folder()
        mark = {_MARK: uuid.uuid4().hex}
        try:
            with _settings(), machine.variables_set(mark):
                ray.init(**{**self._of_our_own(), "_temp_dir": str(folder), **options})
            started = set(psutil.Process().children(recursive=True)) - before
            self._raylet = next(process for process in started if process.name().startswith("raylet"))
            self._guard = Guard(started, mark, folder)
            forks.begin(folder, mark, self._raylet.pid)
        except BaseException:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _of_our_own(self) -> dict[str, Any]:
        return {
            "address": "local",
            "num_cpus": self._cores or machine.cores().count,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "object_store_memory": min(_STORE_AT_MOST, machine.available_memory_bytes() // 4),
            "_system_config": SYSTEM,
        }


def make_folder() -> Path:
    """A folder for the files of one Ray, with a short name: Ray puts sockets there, and their names are limited."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="ray-", dir=usual if len(usual) <= _LONGEST else "/tmp"))


class TooFewCpusError(SeamlineError):
    """The cluster has no room for all workers at once, and they would wait for each other forever."""

    @classmethod
    def asking(cls, workers: int, cpus_each: float) -> TooFewCpusError:
        there, free = _cpus()
        return cls(
            f"{workers} workers with {cpus_each:g} CPU each need {workers * cpus_each:g} CPUs at once, but of the "
            f"{there:g} CPUs of this Ray cluster {free:g} are free; use fewer workers, end what else runs there, "
            "or add nodes"
        )


def _cpus() -> tuple[float, float]:
    """All CPUs of the cluster, and those that nobody has reserved."""
    there, free = ray.cluster_resources(), ray.available_resources()  # type: ignore[no-untyped-call]
    return there.get("CPU", 0), free.get("CPU", 0)


@contextlib.contextmanager
def _settings() -> Iterator[None]:
    """What a Ray of our own is told in no other way; what the user has set in the environment stands.

    It tells nobody that it runs. It stays on 127.0.0.1, which it would otherwise take for an address that other
    machines can reach, and it shows a line that two workers print twice: constants, because Ray has read the
    environment for them when it was imported.
    """
    silent = {} if machine.set_by_user(_USAGE_STATS) else {_USAGE_STATS: "0"}
    cluster = ray_constants.ENABLE_RAY_CLUSTER
    if not machine.set_by_user(_DEDUPLICATION):
        vars(ray_logging)["RAY_DEDUP_LOGS"] = False
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        with machine.variables_set(silent):
            yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = cluster
