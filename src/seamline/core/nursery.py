"""Worker processes that need not import what takes seconds: forks of a process that has done it once.

The nursery starts no thread and computes nothing, so a fork of it is as good as a fresh process.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from seamline.core import machine
from seamline.core.errors import SeamlineError
from seamline.core.process import start as start_fresh

_SIZE = struct.Struct("!I")
_CODE = struct.Struct("!i")
_FDS_AT_MOST = 32
_QUIET_S = 0.5
"""After so long without an order nobody is likely to wait for a fork."""
_END_WITHIN_S = 1.0
_SAY_WITHIN_S = 5.0
"""How long somebody at the door may take to say what is wanted."""
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
                said = self._status.recv(_CODE.size, socket.MSG_PEEK)  # another thread may still wait for it
                self.returncode = _CODE.unpack(said)[0] if said else -signal.SIGKILL  # the nursery was killed with it
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
        self._socket, theirs = socket.socketpair()
        with theirs, contextlib.ExitStack() as stack:
            fds = {"socket": theirs.fileno()}
            if door is not None:
                listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                listener.bind(str(door))
                listener.listen()
                fds["door"] = listener.fileno()
            self._process = start_fresh(__name__, dict(fds), tuple(fds.values()), dict(variables))
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def start(
        self,
        module: str,
        settings: dict[str, Any],
        fds: Mapping[str, int],
        variables: dict[str, str],
        libraries: Libraries,
    ) -> Child:
        ours, theirs = socket.socketpair()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        passed = {"status": theirs.fileno(), "stdout": out_end, "stderr": err_end, **fds}
        order = {
            "module": module,
            "settings": settings,
            "fds": list(passed),
            "path": sys.path,
            "folder": str(Path.cwd()),
            "environment": machine.environment(variables),
            "libraries": libraries,
        }
        try:
            self._order(order, list(passed.values()))
            pid = _CODE.unpack(_exactly(ours, _CODE.size))[0]
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

    def prepare(self, libraries: Libraries) -> None:
        """Let it import these before it forks the next one."""
        self._order({"libraries": libraries}, [])

    def _order(self, order: dict[str, Any], fds: list[int]) -> None:
        body = json.dumps(order).encode()
        socket.send_fds(self._socket, [_SIZE.pack(len(body))], fds)
        self._socket.sendall(body)

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


class _Nurseries:
    """The one of this process that new workers come from, and those whose last children have not gone yet."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._kind: object = None
        self._all: list[Nursery] = []
        self._choosing = threading.Lock()
        atexit.register(self._close)

    @property
    def ours(self) -> bool:
        """Whether they are not those of the process that this one was forked from."""
        return self._pid == os.getpid()

    def start(
        self,
        module: str,
        settings: dict[str, Any],
        fds: Mapping[str, int],
        variables: dict[str, str],
        libraries: Libraries,
    ) -> Child:
        with self._choosing:
            try:
                return self._of(variables).start(module, settings, fds, variables, libraries)
            except (EOFError, OSError) as error:
                self._kind = None  # the next one is asked of another nursery
                raise SeamlineError(
                    "the process that workers are forked from has ended or was killed (when memory runs out the system "
                    "does this: try fewer workers); the next run starts another"
                ) from error

    def _of(self, variables: dict[str, str]) -> Nursery:
        """The one for processes with these variables."""
        environment = {n: v for n, v in machine.environment(variables).items() if n not in _PASSING}
        kind = environment, list(sys.path)
        if self._kind != kind or not self._all[-1].lives:
            for nursery in self._all[-1:]:
                nursery.close()
            self._all = [
                *(nursery for nursery in self._all if nursery.lives),
                Nursery(variables),
            ]
            self._kind = kind
        return self._all[-1]

    def _close(self) -> None:
        if self.ours:  # they are not waited for: what is closed after this may have children there
            for nursery in self._all:
                nursery.leave()


_here: _Nurseries | None = None


def start(
    module: str,
    settings: dict[str, Any],
    fds: Mapping[str, int],
    variables: dict[str, str],
    libraries: Libraries | None = None,
) -> Child:
    """A process that runs ``main`` of a module, as ``process.start`` does, with descriptors by their names.

    It has the variables, modules, folder and paths of this process; the large ``libraries``, by default those of this
    process, are there already.
    """
    global _here
    if _here is None or not _here.ours:
        _here = _Nurseries()
    return _here.start(module, settings, fds, variables, libraries or Libraries.of_this_process())


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
            for each in [each for each in self._listening if each in ready]:
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
                    self._children[pid].sendall(_CODE.pack(code))

    def _hear(self, source: socket.socket) -> None:
        if source is self._driver:
            order = _receive(source)
            if order is None:
                self._listening = []
        else:
            with source.accept()[0] as caller:
                caller.settimeout(_SAY_WITHIN_S)
                order = _receive(caller)
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


def _receive(driver: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    try:
        head, fds, _, _ = socket.recv_fds(driver, _SIZE.size, _FDS_AT_MOST)
        if not head:
            return None
        head += _exactly(driver, _SIZE.size - len(head))
        return json.loads(_exactly(driver, _SIZE.unpack(head)[0])), fds
    except (EOFError, OSError):
        return None


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = source.recv(size - len(data))
        if not some:
            raise EOFError
        data += some
    return bytes(data)


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
            status.sendall(_CODE.pack(pid))
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
