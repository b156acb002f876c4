"""A Spark cluster of our own on this machine: a master and its workers, for as long as this process lives."""

from __future__ import annotations

import re
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from seamline.core.errors import SeamlineError
from seamline.engines.family import Family, lives
from seamline.engines.spark import jvm, log
from seamline.engines.spark.java import java_home
from seamline.engines.spark.session import LOOPBACK, pyspark_session

if TYPE_CHECKING:
    import psutil

_LOOK_EVERY_S = 0.05
_ANY_PORT = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
_DAEMON_MEMORY = "256m"
_LIGHT = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Master and workers do next to nothing, and need not be good at it."""


class StandaloneCluster:
    """A master and ``workers`` workers on the loopback interface, with ports that were free.

    ``conf`` is what a session needs to use it: nobody else can, for it takes a secret. The cluster ends with ``stop``
    or with this process, however that happens, and leaves no files.
    """

    def __init__(
        self, workers: int = 2, cores_per_worker: int = 1, memory: str = "1g", *, start_within_s: float = 90.0
    ) -> None:
        self.workers = workers
        self._room = ("--cores", str(cores_per_worker), "--memory", memory)
        self._memory = memory
        self._start_within_s = start_within_s
        self._deadline = time.monotonic() + start_within_s
        self._folder = Path(tempfile.mkdtemp(prefix="seamline-spark-"))  # for this user's eyes alone
        self._secret = secrets.token_hex(32)
        self._family = Family(self._folder, _variables(self._folder))
        try:
            self.url = self._start_master()
            self._await_workers([self._launch_worker(number) for number in range(workers)])
        except BaseException:
            self.stop()
            raise

    @property
    def conf(self) -> dict[str, str]:
        """Settings for a session on this cluster: its address, its secret, and executors that fill the workers."""
        return {
            "spark.master": self.url,
            "spark.executor.memory": self._memory,
            "spark.executor.defaultJavaOptions": jvm.options(self._folder),
            "spark.authenticate": "true",
            "spark.authenticate.secret": self._secret,
        }

    @property
    def processes(self) -> list[psutil.Process]:
        """Everything that runs for the cluster at this moment, executors included."""
        return self._family.processes

    def add_worker(self) -> None:
        """One more worker like the others, as when a machine comes back; sessions that want its cores get them."""
        self._deadline = time.monotonic() + self._start_within_s
        self.workers += 1
        self._await_workers([self._launch_worker(self.workers - 1)])

    def stop(self) -> None:
        """End everything and remove its files; twice is as good as once."""
        self._family.end()

    def __enter__(self) -> StandaloneCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start_master(self) -> str:
        process, told = self._launch("master", "org.apache.spark.deploy.master.Master", *_ANY_PORT)
        return self._wait_for(r"Starting Spark master at (spark://\S+)", told, process)

    def _launch_worker(self, number: int) -> tuple[psutil.Process, Path]:
        place = ("--work-dir", str(self._folder / f"work-{number}"))
        main = "org.apache.spark.deploy.worker.Worker"
        return self._launch(f"worker-{number}", main, *_ANY_PORT, *self._room, *place, self.url)

    def _await_workers(self, started: list[tuple[psutil.Process, Path]]) -> None:
        for process, told in started:
            self._wait_for(r"(Successfully registered with master)", told, process)

    def _launch(self, name: str, main: str, *options: str) -> tuple[psutil.Process, Path]:
        told = self._folder / f"{name}.log"
        settings = self._folder / "spark.conf"
        settings.write_text(f"spark.authenticate true\nspark.authenticate.secret {self._secret}\n")
        command = [str(spark_home() / "bin" / "spark-class"), main, "--properties-file", str(settings), *options]
        return self._family.start(command, told), told

    def _wait_for(self, pattern: str, told: Path, process: psutil.Process) -> str:
        """What the log says once it does; an error with the end of the log where it never will."""
        while True:
            text = told.read_text()
            found = re.search(pattern, text)
            if found:
                return found[1]
            running = lives(process)
            if not running or time.monotonic() > self._deadline:
                how = "did not start in time" if running else "ended while it started"
                last = "\n".join(text.splitlines()[-20:])
                raise SeamlineError(f"the Spark {told.stem} {how}; this is the last that it said:\n{last}")
            time.sleep(_LOOK_EVERY_S)


def spark_home() -> Path:
    """The folder of the Spark that pyspark uses: ``SPARK_HOME``, or pyspark's own."""
    pyspark_session()
    from pyspark.find_spark_home import _find_spark_home

    return Path(_find_spark_home())


def _variables(folder: Path) -> dict[str, str]:
    local = folder / "local"
    local.mkdir()
    daemons = f"{log.option(log.for_cluster(folder))} -Dspark.master.rest.enabled=false {_LIGHT} {jvm.options(folder)}"
    return {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(spark_home()),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(local),
        "SPARK_DAEMON_MEMORY": _DAEMON_MEMORY,
        "SPARK_DAEMON_JAVA_OPTS": daemons,
        **jvm.launcher_variables(),
    }
