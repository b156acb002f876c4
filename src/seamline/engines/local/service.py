"""A worker process that stays: set up once, it answers one request after the other."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from multiprocessing.connection import wait
from typing import Any

from seamline.core import machine
from seamline.core.errors import WorkerError
from seamline.core.failure import how_it_ended, restored
from seamline.core.nursery import Child, start
from seamline.core.output import Output, Stream, Teller
from seamline.core.packet import Packet, receive, send, some

_LOOK_EVERY_S = 0.2
"""How often a silent worker is checked; one that dies is heard at once unless a fork of it holds its socket."""
_LEAVE_WITHIN_S = 1.0
"""How long a worker that was told to stop may take for the request at hand before it is killed."""
_CLEAN_UP_WITHIN_S = 3.0
"""How long its libraries may take after that; those that are killed leave their temporary files."""


class ServiceError(WorkerError):
    """One lasting worker raised or died.

    Example: the model of copy 1 raises for the fourth batch. ``worker`` is ``"copy 1"``, ``item`` is 3,
    ``traceback`` is what the worker would have printed, and ``__cause__`` is its exception where that could be pickled.
    """

    def __init__(self, worker: str, traceback: str, item: int | None = None) -> None:
        super().__init__(None, traceback)
        self.args = (worker, traceback, item)
        self.worker = worker
        self.item = item

    def __str__(self) -> str:
        where = "" if self.item is None else f" on item {self.item}"
        return f"{self.worker} failed{where}.\n\n{self.traceback}"


class ServiceLostError(ServiceError):
    """The process of a lasting worker has ended by itself, so what it was asked may be asked of another."""


class Service:
    """One process that calls ``setup`` once and then what it returned, with each request in turn.

    ``name`` stands in front of errors and of the lines that the worker prints, unless ``tell`` takes those. ``cores``
    pins the worker and ``threads`` sets its thread variables, but none that the user has set. At most ``ahead``
    requests wait for an answer. A request that raises costs an error and nothing else; after ``ended`` the service is
    of no further use.
    No process outlives ``close`` or the driver, however that ends.
    """

    def __init__(
        self,
        setup: Callable[[], Callable[[Any], Any]] | Packet,
        *,
        name: str,
        cores: tuple[int, ...] | None = None,
        threads: int | None = None,
        ahead: int = 2,
        tell: Teller | None = None,
    ) -> None:
        self._driver = os.getpid()
        self._name = name
        self._ahead = ahead
        self._submitted: deque[Future[Packet]] = deque()
        self._requests: queue.SimpleQueue[Packet | None] = queue.SimpleQueue()
        self._pending: deque[Future[Packet]] = deque()
        self._end: Callable[[], ServiceError] | None = None
        self._changed = threading.Condition()
        self._ending = threading.Lock()
        self._silent = threading.Event()
        packet = setup if isinstance(setup, Packet) else Packet.of(setup, name)
        self._process, self._socket, self._lifeline = _start(cores, machine.thread_settings(threads) if threads else {})
        self._seen_off = False
        self._outputs = [
            Output(self._process.stdout.fileno(), 0, "stdout", tell or self._print),
            Output(self._process.stderr.fileno(), 0, "stderr", tell or self._print),
        ]
        self._setup = self._enqueue(packet)
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._write, self._listen)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the worker could not be set up, has died or was closed."""
        return self._end is not None or self._silent.is_set() or self._exited()

    @property
    def unanswered(self) -> int:
        return len(self._pending)

    def wait_until_ready(self, timeout_s: float | None = None) -> None:
        """Return once the worker is set up; raises what went wrong, or ``TimeoutError``."""
        self._setup.result(timeout_s)

    def ask(self, request: Packet) -> Future[Packet]:
        """The answer to come, as a packet, so that it can go to another worker unopened; failures come in it too.

        Waits while ``ahead`` requests are unanswered. Answers come in the order of the requests.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._end is not None or len(self._pending) < self._ahead)
            if self._end is None:
                return self._enqueue(request)
            failed: Future[Packet] = Future()
            failed.set_exception(self._end())
            return failed

    def submit(self, value: object) -> None:
        """Send a request whose answer ``receive`` will return; waits while ``ahead`` others are unanswered."""
        self._submitted.append(self.ask(Packet.of(value, f"a request to {self._name}")))

    def receive(self) -> Any:
        """The answer to the oldest submitted request that has not been received; raises ``WorkerError``."""
        if not self._submitted:
            raise ValueError("nothing was submitted that has not been received")
        return self._submitted.popleft().result().open()

    def dismiss(self) -> None:
        """Let the worker end without waiting for it, so that several can end at the same time; then ``close``."""
        if os.getpid() != self._driver:  # a fork of the driver ends, and the worker is not its own
            return
        with self._changed:
            if self._end is None:
                self._end = functools.partial(ServiceError, self._name, "it was closed before it had answered")
            self._changed.notify_all()
        self._requests.put(None)
        with contextlib.suppress(OSError):  # it has died, or was closed before
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the worker and all it has started; requests without an answer fail."""
        if (
            threading.current_thread() in self._threads
        ):  # garbage may be collected there, and nobody can wait for itself
            threading.Thread(target=self.close).start()
            return
        if os.getpid() != self._driver:
            return
        self.dismiss()
        writer, reader = self._threads
        if not self._silent.wait(_LEAVE_WITHIN_S):
            self._end_processes()
        reader.join()
        writer.join()
        with self._ending:
            if self._socket.fileno() < 0:
                return
            self._socket.close()
            os.close(self._lifeline)
            self._process.stdout.close()
            self._process.stderr.close()
            self._process.close()

    def _enqueue(self, request: Packet) -> Future[Packet]:
        answer: Future[Packet] = Future()
        self._pending.append(answer)
        self._requests.put(request)
        return answer

    def _write(self) -> None:
        with contextlib.suppress(OSError):  # the worker is gone, which the other thread finds out
            for request in iter(self._requests.get, None):
                send(self._socket, False, request)

    def _listen(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._resolve(*receive(self._read))
        self._silent.set()
        deadline = time.monotonic() + _CLEAN_UP_WITHIN_S
        while not self._exited() and time.monotonic() < deadline:
            time.sleep(0.005)
        self._end_processes()
        for output in self._outputs:
            output.finish()
        with self._changed:
            self._end = self._end or functools.partial(ServiceLostError, self._name, self._obituary())
            lost = list(self._pending)
            self._pending.clear()
            self._changed.notify_all()
        for answer in lost:
            answer.set_exception(self._end())

    def _resolve(self, failed: int, packet: Packet) -> None:
        failure = functools.partial(_failure, self._name, packet)
        with self._changed:
            answer = self._pending.popleft()
            if failed and answer is self._setup:
                self._end = self._end or failure
            self._changed.notify_all()
        if failed:
            answer.set_exception(failure())
        else:
            answer.set_result(packet)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            self._wait_for_data()
            rest = rest[some(self._socket, rest) :]
        return data

    def _wait_for_data(self) -> None:
        """Pass on what the worker prints until it answers; ``EOFError`` once it never will."""
        while True:
            outputs = {output.fd: output for output in self._outputs if output.open}
            exited = self._exited()
            ready = wait([self._socket, *outputs], timeout=0 if exited else _LOOK_EVERY_S)
            for fd in ready:
                if isinstance(fd, int):
                    outputs[fd].pump()
            if self._socket in ready:
                return
            if exited:
                raise EOFError

    def _exited(self) -> bool:
        """Whether the worker has ended; its process id stays taken, so that ending its group hits nobody else."""
        return self._process.poll() is not None

    def _end_processes(self) -> None:
        """Kill the worker and what it has started, and see its guard off."""
        with self._ending:
            if self._seen_off:
                return
            self._seen_off = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):  # the guard has gone already
                os.write(self._lifeline, b".")
            guard_gone = select.poll()
            guard_gone.register(self._lifeline, 0)
            guard_gone.poll(1000 * _LEAVE_WITHIN_S)
            self._process.wait()

    def _obituary(self) -> str:
        return f"its process {how_it_ended(self._process.returncode)}"

    def _print(self, _rank: int, stream: Stream, line: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        with contextlib.suppress(ValueError, OSError):  # the driver's own stream may be closed; answers still count
            target.write(f"[{self._name}] {line}\n")
            target.flush()


def wait_until_all_ready(services: list[Service]) -> None:
    """Return once every worker is set up; where one is not, all are closed and dropped from the list."""
    try:
        for service in services:
            service.wait_until_ready()
    except BaseException:
        close_all(services)
        services.clear()
        raise


def close_all(services: Iterable[Service]) -> None:
    """Close services together, in the time of the slowest."""
    services = list(services)
    for service in services:
        service.dismiss()
    for service in services:
        service.close()


def in_order(items: Iterable[Any], ask: Callable[[Packet], Future[Packet]], ahead: int) -> Iterator[Any]:
    """The answer to each item in turn; at most ``ahead`` items are taken before their answers are."""
    asked: deque[tuple[int, Future[Packet]]] = deque()
    for index, item in enumerate(items):
        asked.append((index, ask(Packet.of(item, f"item {index}"))))
        while asked and (len(asked) >= ahead or asked[0][1].done()):
            yield _answer(*asked.popleft())
    while asked:
        yield _answer(*asked.popleft())


def _answer(index: int, answer: Future[Packet]) -> Any:
    try:
        return answer.result().open()
    except ServiceError as error:
        raise ServiceError(error.worker, error.traceback, index) from error.__cause__


def _start(cores: tuple[int, ...] | None, variables: dict[str, str]) -> tuple[Child, socket.socket, int]:
    """A worker process, the socket to it, and the descriptor whose end is the worker's."""
    ours, theirs = socket.socketpair()
    lifeline, held = os.pipe()
    fds = {"socket": theirs.fileno(), "lifeline": lifeline}
    try:
        process = start("seamline.engines.local.service_worker", {"cores": cores}, fds, variables)
    except BaseException:
        ours.close()
        os.close(held)
        raise
    finally:
        theirs.close()
        os.close(lifeline)
    return process, ours, held


def _failure(name: str, packet: Packet) -> ServiceError:
    text, body = packet.open()
    error = ServiceError(name, text)
    error.__cause__ = restored(body)
    return error
