"""What a worker process does, from its first instruction to its last word."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any, TypeVar

import cloudpickle

from seamline.core.errors import PeerLostError
from seamline.core.failure import described
from seamline.core.process import end_with_driver, settle
from seamline.core.startup import without_collecting
from seamline.engines.local.block import Block

T = TypeVar("T")


class LocalWorld:
    """A world whose members meet through the driver."""

    host = "127.0.0.1"

    def __init__(self, rank: int, size: int, generation: int, driver: Connection) -> None:
        self.rank = rank
        self.size = size
        self.generation = generation
        self._driver = driver
        self._sending = threading.Lock()

    def all_gather(self, value: T) -> list[T]:
        return [cloudpickle.loads(each) for each in self._asked("gather", value)]

    def renew(self) -> None:
        self.generation = self._asked("renew", None)

    def _asked(self, kind: str, value: object) -> Any:
        self.send(f"{kind} {self.generation}", value)
        kind, answer = cloudpickle.loads(self._driver.recv_bytes())
        if kind == "lost":
            raise PeerLostError(answer)
        return answer

    def report(self, message: object) -> None:
        self.send("report", message)

    def send(self, kind: str, value: object) -> None:
        body = cloudpickle.dumps(value, protocol=5)
        with self._sending:
            self._driver.send_bytes(kind.encode())
            self._driver.send_bytes(body)


def main() -> None:
    """Entry point of the process; the settings come as JSON on the command line."""
    settings = json.loads(sys.argv[1])
    guard = end_with_driver(settings["lifeline"])
    settle(settings["cores"])
    driver = Connection(settings["connection"])
    world = LocalWorld(settings["rank"], settings["size"], settings["generation"], driver)
    try:
        with without_collecting():
            work = Block(settings["work"])
            task, shard = (work.load(place) for place in settings["places"])
        gc.freeze()
        result = task(world, shard)
        results = Block(settings["results"])
        place = results.store(result, "the result")
        results.flush()
        world.send("done", place)
        code = 0
    except BaseException as error:
        _tell_failure(world, error)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
    # A library that keeps threads or handlers alive must not hold up a worker that has said its last word.
    os._exit(code)


def _tell_failure(world: LocalWorld, error: BaseException) -> None:
    text, body = described(error)
    report = {"traceback": text, "consequence": isinstance(error, PeerLostError), "error": body}
    with contextlib.suppress(OSError):  # the driver may be gone, and then nobody is left to tell
        world.send("failed", report)
