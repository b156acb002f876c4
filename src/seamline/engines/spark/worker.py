"""What the process of a worker does, from its first instruction to its last word."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, TypeVar

from seamline.core.errors import PeerLostError
from seamline.core.failure import described
from seamline.core.packet import Packet
from seamline.core.process import end_with_driver, settle
from seamline.core.startup import without_collecting
from seamline.engines.spark import broadcast
from seamline.engines.spark.wire import Kind, Wire

T = TypeVar("T")


class SparkWorld:
    """A world whose members meet through the driver."""

    def __init__(self, rank: int, size: int, host: str, driver: Wire) -> None:
        self.rank = rank
        self.size = size
        self.host = host
        self._driver = driver

    def all_gather(self, value: T) -> list[T]:
        self._driver.send(Kind.GATHER, Packet.of(value, "the gathered value", copy=False))
        return [self._next() for _ in range(self.size)]

    def _next(self) -> Any:
        try:
            kind, body = self._driver.receive()
        except (EOFError, OSError) as error:
            raise PeerLostError("the driver is gone") from error
        if kind is Kind.LOST:
            raise PeerLostError(body.open())
        return body.open()

    generation = 0

    def renew(self) -> None:
        raise PeerLostError("a task of a barrier stage is not replaced alone")

    def report(self, message: object) -> None:
        self._driver.send(Kind.REPORT, Packet.of(message, "the report", copy=False))


def main() -> None:
    """Entry point of the process; the settings come as JSON on the command line."""
    settings = json.loads(sys.argv[1])
    guard = end_with_driver(settings["lifeline"])
    settle(None)
    broadcast.found_at({int(number): Path(path) for number, path in settings["broadcasts"].items()})
    if Path(settings["folder"]).is_dir():
        os.chdir(settings["folder"])
    connection = socket.socket(fileno=settings["socket"])
    connection.set_inheritable(False)
    driver = Wire(connection)
    try:
        with without_collecting():
            task, shard = (driver.receive()[1].open() for _ in range(2))
        gc.freeze()
        result = task(SparkWorld(settings["rank"], settings["size"], settings["host"], driver), shard)
        driver.send(Kind.DONE, Packet.of(result, "the result", copy=False))
    except BaseException as error:
        _tell_failure(driver, error)
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
    # It has said its last word. What it has started goes with it, even if nobody is left to see to that.
    os.killpg(0, signal.SIGKILL)


def _tell_failure(driver: Wire, error: BaseException) -> None:
    text, body = described(error)
    report = {"traceback": text, "consequence": isinstance(error, PeerLostError), "error": body}
    with contextlib.suppress(OSError):  # the driver may be gone, and then nobody is left to tell
        driver.send(Kind.FAILED, Packet.of(report, "the error"))
