"""Processes that end together: when they are told to, or with the one who started them, however that one ends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from seamline.core import machine
from seamline.engines import family_guard

_GONE_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.02


class Family:
    """Processes below a guard, which has a session of its own and holds a folder for them.

    When nobody holds on to the guard any more, it kills them and all that they have started, and removes the folder.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self.folder = folder
        self._guard = subprocess.Popen(
            [sys.executable, "-I", family_guard.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=machine.environment(variables),
            start_new_session=True,
        )

    def start(self, command: Sequence[str], log: Path) -> psutil.Process:
        """One more process; what it says goes to ``log``."""
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._guard.stdin.write(json.dumps({"command": list(command), "log": str(log)}) + "\n")
        self._guard.stdin.flush()
        return psutil.Process(int(self._guard.stdout.readline()))

    @property
    def processes(self) -> list[psutil.Process]:
        """All that run at this moment, the guard among them."""
        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self._guard.pid)
            return [process for process in (first, *first.children(recursive=True)) if lives(process)]
        return []

    def end(self) -> None:
        """Let go of the guard and wait until all is gone; twice is as good as once."""
        processes = self.processes
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                stream.close()
        self._guard.wait()
        await_end(processes)

    def __enter__(self) -> Family:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def await_end(processes: Iterable[psutil.Process]) -> None:
    """Return when these have ended, or do not even after being killed a while ago."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(map(lives, processes)) and time.monotonic() < deadline:
        time.sleep(_LOOK_EVERY_S)


def lives(process: psutil.Process) -> bool:
    """Whether a process runs: one that has ended and that nobody has asked for yet does not."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
