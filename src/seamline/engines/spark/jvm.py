"""Where the JVMs that we start put their temporary files: in folders of ours, which go with them."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from seamline.core import machine
from seamline.core.folder import SharedFolder, new_path

_NO_STATISTICS = "-XX:-UsePerfData"
"""Without it each JVM has a file in the machine's temporary folder, which one that is killed leaves behind."""
_PREFIX = "seamline-java-"
_LAUNCHER = "SPARK_LAUNCHER_OPTS"


def options(folder: Path) -> str:
    """For a JVM: this folder for temporary files, and no other."""
    return f'{_NO_STATISTICS} "-Djava.io.tmpdir={folder}"'


def launcher_variables() -> dict[str, str]:
    """For the short-lived JVM that finds out how to start the next one."""
    theirs = machine.environment().get(_LAUNCHER, "")
    return {_LAUNCHER: f"{_NO_STATISTICS} {theirs}".strip()}


class DriverFolder:
    """The temporary folder of the driver's JVM, if that is still to be started.

    The JVM removes it when it ends, which it does with this process. Where it was killed, this process does so, and
    where both were, the next that starts Spark.
    """

    def __init__(self) -> None:
        from pyspark import SparkContext

        self._folder: SharedFolder | None = None
        if SparkContext._gateway is None:
            self._folder = SharedFolder(new_path(_PREFIX), lambda folder: None, prefix=_PREFIX)
            self._folder.close.atexit = False  # the JVM may still be at work
            atexit.register(_remove_if_ownerless, self._folder)

    @property
    def conf(self) -> dict[str, str]:
        """Settings to start the JVM with; the user's own options come after them and win."""
        return {} if self._folder is None else {"spark.driver.defaultJavaOptions": options(self._folder.path)}

    def hand_over(self, jvm: Any) -> None:
        """Let the JVM remove the folder at its end."""
        if self._folder is not None:
            hooks = jvm.org.apache.spark.util.ShutdownHookManager
            hooks.registerShutdownDeleteDir(jvm.java.io.File(str(self._folder.path)))


def _remove_if_ownerless(folder: SharedFolder) -> None:
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is None or gateway.proc.poll() is not None:
        folder.close()
