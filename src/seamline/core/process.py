"""Starting a worker process, and ending it with the process that it works for."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from seamline.core import machine

_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[2]); importlib.import_module(sys.argv[3]).main()"
)


def start(
    module: str, settings: dict[str, Any], fds: tuple[int, ...], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A process that runs ``main`` of a module, with its settings on the command line and the descriptors inherited.

    It finds the modules that this process finds, and leads a process group of its own.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT, json.dumps(settings), json.dumps(sys.path), module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=machine.environment(variables),
        pass_fds=fds,
        start_new_session=True,
    )


def settle(cores: list[int] | None) -> None:
    """Take the cores that were given, and say each line when it is complete."""
    if cores:
        os.sched_setaffinity(0, cores)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def end_with_driver(lifeline: int) -> int:
    """Fork a guard that kills this process and all its children once the driver is gone; returns its pid.

    The driver holds the other end of the lifeline and closes it by ending, however that happens. A thread could
    not do it: while a native library holds the interpreter lock it would not run.
    """
    group = os.getpgrp()
    guard = os.fork()
    if guard == 0:
        os.setsid()
        for fd in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
            if fd != lifeline:
                with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
                    os.close(fd)
        os.read(lifeline, 1)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        os._exit(0)
    os.close(lifeline)
    return guard
