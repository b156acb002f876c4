"""Worker processes that need not import what takes seconds: forks of a process that has done it once (``forking``)."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from seamline.core import machine
from seamline.core.errors import SeamlineError
from seamline.core.fork_order import CODE, exactly, send
from seamline.core.process import start as start_fresh

_PROCESS = "seamline.core.forking"
_END_WITHIN_S = 1.0
_AT_MOST = 2
"""Nurseries that are kept at a time: runs of one worker and of several usually differ in their variables."""
_PASSING = ("PYTEST_CURRENT_TEST", "_")
"""Variables that change all the time and that no library reads while it is imported."""
_WORTH_SHARING = ("torch", "torch.distributed", "torch.nn.parallel", "numpy", "torch._dynamo", "pyarrow", "pandas")
"""Libraries that take long."""
_AT_ONCE = _WORTH_SHARING[:4]
"""Those that are there before a fork is made; the others are imported while nobody waits for one."""
_OURS = re.compile(r"seamline\.(core|frameworks|runtimes)\.")

_expected: list[str] = []


def expect(*names: str) -> None:
    """Say that from now on workers are going to import these, whether or not this process does."""
    _expected.extend(name for name in names if name not in _expected)


class Libraries(NamedTuple):
    """What takes long to import, and is to be there before a fork is made, or as soon as nobody waits for one."""

    first: list[str]
    later: list[str]

    @classmethod
    def of_this_process(cls) -> Libraries:
        large = [name for name in _WORTH_SHARING if name in sys.modules]
        at_once = [name for name in large if name in _AT_ONCE]
        first = [*at_once, *_expected, *filter(_OURS.match, sys.modules)]
        return cls(first, [name for name in large if name not in first])


@dataclass(frozen=True, slots=True)
class Wish:
    """A fork that is to run ``main`` of a module, with what it is told and given; descriptors by their names."""

    module: str
    settings: dict[str, Any]
    fds: Mapping[str, int]
    variables: dict[str, str]
    libraries: Libraries


Kind = tuple[tuple[tuple[str, str], ...], tuple[str, ...]]


def kind_of(variables: dict[str, str]) -> Kind:
    """What a nursery for processes with these variables has in common with them from its start."""
    environment = machine.environment(variables).items()
    return tuple(sorted(each for each in environment if each[0] not in _PASSING)), tuple(sys.path)


class Child:
    """A fork, with what one may ask of a ``subprocess.Popen``; nobody else gets its number before ``close``."""

    def __init__(self, pid: int, status: socket.socket, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb", buffering=0)
        self.stderr: IO[bytes] = os.fdopen(stderr, "rb", buffering=0)
        self._status = status
        self._asking = threading.Lock()

    def poll(self) -> int | None:
        with self._asking:
            if self.returncode is None and self._has_ended(0):
                said = self._status.recv(CODE.size, socket.MSG_PEEK)  # another thread may still wait for it
                self.returncode = CODE.unpack(said)[0] if said else -signal.SIGKILL  # the nursery was killed with it
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._has_ended(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired("a worker", timeout or 0.0)
        return code

    def close(self) -> None:
        """Ask no more; what it has said can still be read."""
        self._status.close()

    def _has_ended(self, within_s: float | None) -> bool:
        waiting = select.poll()  # not select, which knows few descriptors
        waiting.register(self._status, select.POLLIN)
        return bool(waiting.poll(None if within_s is None else 1000 * within_s))


class Nursery:
    """The process that is forked, as its driver sees it; it ends with the driver, however that ends.

    At its ``door``, if it has one, other processes may order forks too: whoever may connect to that file.
    """

    def __init__(self, variables: Mapping[str, str], door: Path | None = None) -> None:
        self.door = door
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            fds = {"socket": theirs.fileno()}
            if door is not None:
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(door))
                listener.listen()
                fds["door"] = listener.fileno()
            self._process = start_fresh(_PROCESS, dict(fds), tuple(fds.values()), dict(variables))
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def start(self, wish: Wish) -> Child:
        return forked(self._socket, wish)

    def prepare(self, libraries: Libraries) -> None:
        """Let it import these before it forks the next one."""
        send(self._socket, {"libraries": libraries}, [])

    def close(self) -> None:
        """Fork no more; the nursery goes with the last of its children."""
        self._socket.close()

    def end(self) -> None:
        """Close it, and let it be gone: it is killed if it has children that stay."""
        self.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_WITHIN_S)
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """Close it for a driver that ends: nobody will ask how the nursery did."""
        self.close()
        self._process.returncode = self._process.returncode or 0  # else Python warns of a process that still runs


def forked(nursery: socket.socket, wish: Wish) -> Child:
    """A fork of the nursery at the other end of a connection."""
    ours, theirs = socket.socketpair()
    out, out_end = os.pipe()
    err, err_end = os.pipe()
    passed = {"status": theirs.fileno(), "stdout": out_end, "stderr": err_end, **wish.fds}
    order = {
        "module": wish.module,
        "settings": wish.settings,
        "fds": list(passed),
        "path": sys.path,
        "folder": str(Path.cwd()),
        "environment": machine.environment(wish.variables),
        "libraries": wish.libraries,
    }
    try:
        send(nursery, order, list(passed.values()))
        pid = CODE.unpack(exactly(ours, CODE.size))[0]
    except BaseException:
        os.close(out)
        os.close(err)
        ours.close()
        raise
    finally:
        theirs.close()
        os.close(out_end)
        os.close(err_end)
    return Child(pid, ours, out, err)


class Nurseries:
    """The few that were used last, by what they have in common with their forks, and those that are about to go."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Nursery] = {}
        self._leaving: list[Nursery] = []

    def of(self, kind: Hashable, make: Callable[[], Nursery]) -> Nursery:
        found = self._known.pop(kind, None)
        if found is None or not found.lives:
            self._let_go(found)
            found = make()
        self._known[kind] = found  # the one that was used last is the last
        while len(self._known) > _AT_MOST:
            self.forget(next(iter(self._known)))
        return found

    def forget(self, kind: Hashable) -> None:
        self._let_go(self._known.pop(kind, None))

    def _let_go(self, nursery: Nursery | None) -> None:
        if nursery is not None:
            nursery.close()
            self._leaving.append(nursery)
        self._leaving = [each for each in self._leaving if each.lives]

    def all(self) -> list[Nursery]:
        return [*self._leaving, *self._known.values()]


class _OfThisProcess:
    """Those that the workers of this process come from."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._nurseries = Nurseries()
        self._choosing = threading.Lock()
        atexit.register(self._close)

    @property
    def ours(self) -> bool:
        """Whether they are not those of the process that this one was forked from."""
        return self._pid == os.getpid()

    def start(self, wish: Wish) -> Child:
        kind = kind_of(wish.variables)
        with self._choosing:
            nursery = self._nurseries.of(kind, lambda: Nursery(wish.variables))
            try:
                return nursery.start(wish)
            except (EOFError, OSError) as error:
                self._nurseries.forget(kind)
                raise SeamlineError(
                    "the process that workers are forked from has ended or was killed (when memory runs out the system "
                    "does this: try fewer workers); the next run starts another"
                ) from error

    def _close(self) -> None:
        if self.ours:  # they are not waited for: what is closed after this may have children there
            for nursery in self._nurseries.all():
                nursery.leave()


_here: _OfThisProcess | None = None


def start(module: str, settings: dict[str, Any], fds: Mapping[str, int], variables: dict[str, str]) -> Child:
    """A process that runs ``main`` of a module, as ``process.start`` does, with descriptors by their names.

    It has the variables, modules, folder and paths of this process; what this one has imported of the large libraries
    is there already.
    """
    global _here
    if _here is None or not _here.ours:
        _here = _OfThisProcess()
    return _here.start(Wish(module, settings, fds, variables, Libraries.of_this_process()))
