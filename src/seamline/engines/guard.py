"""A process that ends others once their driver is gone, however that happened."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Set
from pathlib import Path

import psutil

from seamline.core.process import start
from seamline.engines.family import lives

_GONE_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02


class Guard:
    """Watches over this process; ``close`` lets the guard do its work now and go. The folder goes with the others.

    The others are those named, all that they have started, and all that have ``mark`` in their environment. The last
    are found also when the process that has started them is gone already; the first also when they have written their
    title over their environment.
    """

    def __init__(self, over: Iterable[psutil.Process], mark: Mapping[str, str], folder: Path) -> None:
        lifeline, self._held = os.pipe()
        try:
            settings = {
                "lifeline": lifeline,
                "processes": [process.pid for process in over],
                "mark": dict(mark),
                "folder": str(folder),
            }
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
    known = {psutil.Process(pid) for pid in settings["processes"] if psutil.pid_exists(pid)}
    mark = settings["mark"].items()
    os.read(settings["lifeline"], 1)
    deadline = time.monotonic() + _GONE_WITHIN_S
    while (known := _family(known, mark)) and time.monotonic() < deadline:
        for process in known:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has gone by itself, which is the rule
                process.kill()
        time.sleep(_LOOK_EVERY_S)
    shutil.rmtree(settings["folder"], ignore_errors=True)


def _family(known: set[psutil.Process], mark: Set[tuple[str, str]]) -> set[psutil.Process]:
    """Those of it who live: the known, the marked, and what they have started."""
    found = known | {process for process in psutil.process_iter() if _has(process, mark)}
    for process in list(found):
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= set(process.children(recursive=True))
    return {process for process in found if lives(process)}


def _has(process: psutil.Process, mark: Set[tuple[str, str]]) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
        return process.environ().items() >= mark
    return False
