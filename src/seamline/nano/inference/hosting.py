"""What the process does that a search forks its contenders from: import once, start, ask and end them.

It starts no thread and computes nothing, so a fork of it is as good as a fresh process, without the seconds that
importing takes. Everything else happens in the forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import signal
import socket
import stat
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from seamline.core.failure import described, how_it_ended
from seamline.core.packet import Packet, receive, send, some
from seamline.core.process import end_with_driver

LEAVE_WITHIN_S = 3.0
"""How long the libraries of a contender may clean up before it is killed."""

Outcome = Literal["answer", "error", "late", "lost"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of a request: an answer, an error to restore, or that none came and why."""

    outcome: Outcome
    packet: Packet


@dataclass(slots=True)
class _Fork:
    pid: int
    socket: socket.socket
    lifeline: int


class Host:
    """Contenders by number; each is a fork that leads its own process group and ends with this process."""

    def __init__(self, imports: Iterable[str]) -> None:
        for name in imports:
            importlib.import_module(name)
        self._forks: dict[int, _Fork] = {}

    def __call__(self, request: tuple[str, Any]) -> Any:
        verb, arguments = request
        return getattr(self, verb)(*arguments)

    def start(self, number: int, setup: Packet) -> None:
        """Fork a contender; it is set up while others may be started."""
        ours, theirs = socket.socketpair()
        lifeline, held = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: numpy's know how to be forked
            pid = os.fork()
        if pid == 0:
            _become(theirs, lifeline, setup)
        with contextlib.suppress(OSError):  # it does so itself; who comes first does not matter
            os.setpgid(pid, pid)
        theirs.close()
        os.close(lifeline)
        self._forks[number] = _Fork(pid, ours, held)

    def ready(self, number: int, timeout_s: float) -> Reply:
        """Wait for the end of the setup."""
        return self._reply(self._forks[number], timeout_s)

    def ask(self, number: int, request: Packet, timeout_s: float) -> Reply:
        fork = self._forks[number]
        with contextlib.suppress(OSError):  # it is gone, which is found out below
            send(fork.socket, False, request)
        return self._reply(fork, timeout_s)

    def end(self, number: int) -> None:
        """End a contender and all that it has started."""
        fork = self._forks.pop(number)
        fork.socket.close()
        deadline = time.monotonic() + LEAVE_WITHIN_S
        while time.monotonic() < deadline and _exit_code(fork.pid) is None:
            time.sleep(0.005)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(fork.pid, signal.SIGKILL)
        os.close(fork.lifeline)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(fork.pid, 0)

    def _reply(self, fork: _Fork, timeout_s: float) -> Reply:
        deadline = time.monotonic() + timeout_s

        def read(size: int) -> bytearray:
            data = bytearray(size)
            rest = memoryview(data)
            while rest:
                fork.socket.settimeout(max(deadline - time.monotonic(), 1e-3))
                rest = rest[some(fork.socket, rest) :]
            return data

        try:
            failed, packet = receive(read)
            fork.socket.settimeout(None)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(fork.pid, signal.SIGKILL)  # it would not leave by itself either
            return Reply("late", Packet.of(f"more than {timeout_s:g} s", "the reason"))
        except (EOFError, OSError):
            code = _exit_code(fork.pid, wait_s=LEAVE_WITHIN_S)
            return Reply("lost", Packet.of(f"its process {how_it_ended(code)}", "the reason"))
        return Reply("error" if failed else "answer", packet)


def _exit_code(pid: int, wait_s: float = 0.0) -> int | None:
    """How a fork has ended, if it has; it stays to be waited for, so that its number stays taken."""
    deadline = time.monotonic() + wait_s
    while True:
        try:
            found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if found is not None:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if time.monotonic() > deadline:
            return None
        time.sleep(0.005)


def _become(driver: socket.socket, lifeline: int, setup: Packet) -> None:
    """The life of a fork; it never returns to what the host was doing."""
    try:
        os.setpgid(0, 0)
        _let_go(driver.fileno(), lifeline)
        guard = end_with_driver(lifeline)
        with contextlib.suppress(EOFError, OSError):  # nobody asks any more
            _serve(driver, setup)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        with contextlib.suppress(OSError):  # a careless os.wait() may have met the guard before
            os.kill(guard, signal.SIGKILL)
            os.waitpid(guard, 0)
        os.killpg(0, signal.SIGKILL)  # what it has started, and itself
    finally:
        os._exit(1)


def _let_go(*ours: int) -> None:
    """Close the sockets and pipes of the host and of other forks, so that their ends are seen."""
    for entry in list(Path("/proc/self/fd").iterdir()):
        fd = int(entry.name)
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
            mode = os.fstat(fd).st_mode
            if fd > 2 and fd not in ours and (stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode)):
                os.close(fd)


def _serve(driver: socket.socket, setup: Packet) -> None:
    def read(size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            rest = rest[some(driver, rest) :]
        return data

    try:
        contender = setup.open()()
        gc.collect()
    except BaseException as error:
        send(driver, True, Packet.of(described(error), "the error"))
        return
    send(driver, False, Packet.of(None, "ready"))
    while True:
        request = receive(read)[1]
        try:
            failed, answer = False, Packet.of(contender(request.open()), "the answer")
        except BaseException as error:
            failed, answer = True, Packet.of(described(error), "the error")
        send(driver, failed, answer)
