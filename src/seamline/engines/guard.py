"""A process that ends others once their driver is gone, however that happened."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterable

import psutil

from seamline.core.process import start


class Guard:
    """Watches over this process; ``close`` lets the guard do its work now and go."""

    def __init__(self, over: Iterable[psutil.Process]) -> None:
        lifeline, self._held = os.pipe()
        try:
            settings = {"lifeline": lifeline, "processes": [process.pid for process in over]}
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
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has gone by itself, which is the rule
            process.kill()
