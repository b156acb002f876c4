"""What the Spark task of a worker does: start the worker's process, watch it, and say how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from seamline.core.common_nursery import start
from seamline.core.nursery import Libraries, Wish
from seamline.core.output import Output, Stream
from seamline.core.packet import Packet
from seamline.engines.spark.wire import Kind, Role, Wire, call

_WORKER = "seamline.engines.spark.worker"
_LOOK_EVERY_S = 0.05
_LEAVE_WITHIN_S = 1.0
"""How long a worker that was told to stop may take before it is killed."""


UNREACHABLE = (
    "cannot reach the driver at {}:{}; set spark.driver.host to an address that the executors can reach, "
    "or with Spark Connect run this program on a machine that they can reach"
)


@dataclass(frozen=True, slots=True)
class Orders:
    """What each Spark task of a run is told by the driver."""

    address: tuple[str, int]
    token: bytes
    size: int
    variables: dict[str, str]
    libraries: Libraries
    folder: str


def keep(orders: Orders, rank: int, part: Iterator[Any]) -> Iterator[str]:
    """Look after one worker until it has ended; what could not be told to the driver itself is told through Spark.

    A task that Spark runs again is not let in, and ends here.
    """
    for _nothing in part:  # Spark ends a Python process that has not read all, and with it what the next run forks
        pass
    try:
        driver = call(orders.address, orders.token, Role.KEEPER, rank)
    except EOFError:
        return iter(())
    except OSError as error:
        return iter([f"worker {rank} on {socket.gethostname()} {UNREACHABLE.format(*orders.address)} ({error})"])
    try:
        _look_after(orders, rank, driver)
    except (EOFError, ConnectionError):  # the driver is gone or has heard enough
        return iter(())
    finally:
        driver.close()
    return iter(())


def _look_after(orders: Orders, rank: int, driver: Wire) -> None:
    worker = call(orders.address, orders.token, Role.WORKER, rank)
    child = _Child(orders, rank, driver, worker)
    try:
        child.watch()
    finally:
        child.end()


class _Child:
    """The process of a worker."""

    def __init__(self, orders: Orders, rank: int, driver: Wire, worker: Wire) -> None:
        from pyspark import SparkFiles

        lifeline, self._held = os.pipe()
        settings = {
            "keeper": os.getpid(),
            "rank": rank,
            "size": orders.size,
            "host": worker.host,
            "folder": orders.folder,
            "broadcasts": _broadcasts(),
        }
        fds = {"socket": worker.fileno(), "lifeline": lifeline}
        place = Path(SparkFiles.getRootDirectory())  # of this executor, for whom it is made and removed
        self._process = start(place, Wish(_WORKER, settings, fds, orders.variables, orders.libraries))
        os.close(lifeline)
        worker.forget()
        self._driver = driver
        self._outputs = [
            Output(self._process.stdout.fileno(), rank, "stdout", self._pass_on),
            Output(self._process.stderr.fileno(), rank, "stderr", self._pass_on),
        ]

    def watch(self) -> None:
        """Pass on what the worker prints until it ends by itself or has to."""
        while self._process.poll() is None:
            if self._look():
                how = self._driver.receive()[1].parts[0]  # raises where the driver has hung up
                self._stop(gently=how == b"gently")

    def end(self) -> None:
        """Kill what is left of the worker and all it has started, and say how it ended."""
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        for output in self._outputs:
            with contextlib.suppress(OSError):
                output.finish()
        self._process.stdout.close()
        self._process.stderr.close()
        self._process.close()
        os.close(self._held)
        self._driver.send_if_open(Kind.EXITED, Packet.of(code, "the exit code"))

    def _look(self) -> bool:
        """Pump the outputs; whether the driver has something to say."""
        outputs = {output.fd: output for output in self._outputs if output.open}
        ready = wait([self._driver.fileno(), *outputs], timeout=_LOOK_EVERY_S)
        for fd in ready:
            if isinstance(fd, int) and fd in outputs:
                outputs[fd].pump()
        return self._driver.fileno() in ready

    def _stop(self, *, gently: bool) -> None:
        if not gently:
            self._signal(signal.SIGTERM)
        deadline = time.monotonic() + _LEAVE_WITHIN_S
        while self._process.poll() is None and time.monotonic() < deadline:
            for output in self._outputs:
                output.pump()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.01)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _pass_on(self, _rank: int, stream: Stream, line: str) -> None:
        self._driver.send(Kind.LINE, Packet((stream.encode(), line.encode())))


def _broadcasts() -> dict[int, str]:
    """Where Spark keeps the broadcast values that this task may read."""
    from pyspark.core.broadcast import _broadcastRegistry

    held = {number: getattr(value, "_path", None) for number, value in _broadcastRegistry.items()}
    return {number: path for number, path in held.items() if path and Path(path).exists()}
