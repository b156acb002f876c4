"""A process that ends others once their driver is gone, however that happened."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from seamline.core.process import start
from seamline.engines.family import await_end


class Guard:
    """Watches over this process; ``close`` lets the guard do its work now and go. The folder goes with the others."""

    def __init__(self, over: Iterable[psutil.Process], folder: Path) -> None:
        lifeline, self._held = os.pipe()
        try:
            settings = {"lifeline": lifeline, "processes": [process.pid for process in over], "folder": str(folder)}
            self._process = start(__name__, settings, (lifeline,), {})
        finally:
            os.close(lifeline)

    def close(self) -> None:
        os.close(self._held)
        self._process.communicate()


def main() -> None:
    """Entry point of the guard; it waits for the end of a pipe that only the driver holds."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    processes = [psutil.Process(pid) for pid in settings["processes"] if psutil.pid_exists(pid)]
    os.read(settings["lifeline"], 1)
    family = [*processes, *_started_by(processes)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has gone by itself, which is the rule
            process.kill()
    await_end(family)
    shutil.rmtree(settings["folder"], ignore_errors=True)


def _started_by(processes: list[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += process.children(recursive=True)
    return found
