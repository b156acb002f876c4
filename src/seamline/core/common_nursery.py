"""One nursery for all processes of a machine that share a folder, such as the Python processes of one executor.

Whoever comes first starts it, and it ends with that process; then the next one to come starts another.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from seamline.core.nursery import Child, Nurseries, Nursery, Wish, forked, kind_of

_started = Nurseries()
"""Those that this process has started and keeps."""


def start(folder: Path, wish: Wish) -> Child:
    """As ``nursery.start``, with a nursery that has its door in ``folder``, which nobody else may open."""

    def ask() -> Child:
        with _connected(folder, wish.variables) as nursery:
            return forked(nursery, wish)

    try:
        return ask()
    except (EOFError, OSError):  # the process that had started it has just ended, and so does the nursery
        return ask()


@contextlib.contextmanager
def _connected(folder: Path, variables: dict[str, str]) -> Iterator[socket.socket]:
    name = hashlib.sha256(json.dumps(kind_of(variables)).encode()).hexdigest()[:16]
    with socket.socket(socket.AF_UNIX) as nursery, _alone(folder) as place:
        door = place / f"nursery-{name}"
        try:
            nursery.connect(str(door))
        except OSError:  # there is none, or it has ended
            door.unlink(missing_ok=True)
            _started.forget(name)
            _started.of(name, lambda: Nursery(variables, door))
            nursery.connect(str(door))
        yield nursery


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[Path]:
    """The folder by a name that is short enough for sockets, while nobody else looks for a nursery in it."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield Path(f"/proc/self/fd/{number}")
    finally:
        os.close(number)
