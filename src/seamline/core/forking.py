"""What a nursery does: it imports, and forks itself for each order, until its driver is gone.

It starts no thread and computes nothing, so a fork of it is as good as a fresh process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import warnings
from typing import Any

from seamline.core.fork_order import CODE, receive

_QUIET_S = 0.5
"""After so long without an order nobody is likely to wait for a fork."""
_SAY_WITHIN_S = 5.0
"""How long somebody at the door may take to say what is wanted."""


def main() -> None:
    """Entry point of the nursery: import, then fork for each order until the driver is gone."""
    settings = json.loads(sys.argv[1])
    gc.disable()  # what is imported stays, and looking through it again and again takes a fifth of the time
    _say_nothing()
    with contextlib.ExitStack() as stack:
        sockets = {name: stack.enter_context(socket.socket(fileno=number)) for name, number in settings.items()}
        for each in sockets.values():
            each.set_inheritable(False)
        _Parent(sockets["socket"], sockets.get("door")).serve()


def _say_nothing() -> None:
    """Libraries may talk while they are imported, and nobody listens; workers have outputs of their own."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):
        os.dup2(nowhere, number)
    os.close(nowhere)


class _Parent:
    """What the nursery does all its life: fork to order, and say how its children have ended."""

    def __init__(self, driver: socket.socket, door: socket.socket | None) -> None:
        self._driver = driver
        self._listening = [driver, *([door] if door else [])]
        self._children: dict[int, socket.socket] = {}
        self._told: set[int] = set()
        self._forgotten: set[int] = set()
        self._tried: set[str] = set()
        self._later: list[str] = []
        self._pipe = os.pipe()
        for end in self._pipe:
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the driver has gone, and then the last child."""
        wake = self._pipe[0]
        while self._listening or self._children:
            statuses = {status: pid for pid, status in self._children.items()}
            idle = self._later and not statuses  # those would have to share the cores with what is imported
            sources: list[Any] = [wake, *statuses, *self._listening]
            ready = select.select(sources, [], [], _QUIET_S if idle else None)[0]
            if not ready:
                self._import(self._later.pop(0))
            if wake in ready:
                os.read(wake, 4096)
            self._forget([statuses[each] for each in ready if each in statuses])
            self._tell()
            for each in [each for each in reversed(self._listening) if each in ready]:  # who is at the door comes first
                self._hear(each)

    def _forget(self, pids: list[int]) -> None:
        """Let those go of whom nobody will ask any more."""
        for pid in pids:
            self._children.pop(pid).close()
            self._told.discard(pid)
            self._forgotten.add(pid)
        self._forgotten = {pid for pid in self._forgotten if os.waitpid(pid, os.WNOHANG)[0] == 0}

    def _tell(self) -> None:
        for pid in self._children.keys() - self._told:
            code = _how_it_ended(pid)
            if code is not None:
                self._told.add(pid)
                with contextlib.suppress(OSError):
                    self._children[pid].sendall(CODE.pack(code))

    def _hear(self, source: socket.socket) -> None:
        if source is self._driver:
            order = receive(source)
            if order is None:
                for each in self._listening:
                    each.close()
                self._listening = []
        else:
            with source.accept()[0] as caller:
                caller.settimeout(_SAY_WITHIN_S)
                order = receive(caller)
        if order is not None:
            self._follow(*order)

    def _follow(self, order: dict[str, Any], fds: list[int]) -> None:
        if "libraries" in order:
            first, later = order["libraries"]
            self._later = [name for name in later if name not in self._tried]
            for name in first:
                if name not in self._tried:
                    self._import(name)
        if "module" in order:
            others = [*self._listening, *self._children.values()]
            pid, status = _fork(order, fds, others, self._pipe)
            self._children[pid] = status

    def _import(self, name: str) -> None:
        self._tried.add(name)
        with contextlib.suppress(Exception):  # a worker that needs it tries again, and tells its driver
            importlib.import_module(name)


def _how_it_ended(pid: int) -> int | None:
    """Its exit code as ``subprocess`` has it, without letting go of its number."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _fork(
    order: dict[str, Any], fds: list[int], others: list[socket.socket], pipe: tuple[int, int]
) -> tuple[int, socket.socket]:
    passed = dict(zip(order["fds"], fds, strict=True))
    status = socket.socket(fileno=passed.pop("status"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # numpy's threads know how to be forked
        pid = os.fork()
    if pid:
        for fd in passed.values():
            os.close(fd)
        with contextlib.suppress(OSError):  # who has ordered it may have gone
            status.sendall(CODE.pack(pid))
        return pid, status
    code = 1
    gc.freeze()
    gc.enable()
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (*others, status):
            each.close()
        for end in pipe:
            os.close(end)
        code = _lived(order, passed)
        atexit._run_exitfuncs()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _lived(order: dict[str, Any], passed: dict[str, int]) -> int:
    """The exit code of a life as the fork of an order."""
    try:
        _become(order, passed)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _become(order: dict[str, Any], passed: dict[str, int]) -> None:
    os.setsid()
    for name, number in (("stdout", 1), ("stderr", 2)):
        fd = passed.pop(name)
        os.dup2(fd, number)
        os.close(fd)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    sys.path[:] = order.get("path", sys.path)
    sys.argv[1:] = [json.dumps({**order["settings"], **passed})]
    random.seed()
    if "numpy.random" in sys.modules:  # its generator was made by the nursery, and forks would draw alike
        sys.modules["numpy.random"].seed()
    importlib.import_module(order["module"]).main()
