"""What a lasting worker does: set up once, then answer one request after the other."""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from seamline.core.failure import described
from seamline.core.packet import Packet, receive, send, some
from seamline.core.process import end_with_driver, settle
from seamline.core.startup import without_collecting


def main() -> None:
    """Entry point of the worker process; the settings come as JSON on the command line."""
    settings = json.loads(sys.argv[1])
    # Registered first, so run last: libraries clean up before.
    atexit.register(_leave, os.getpid(), end_with_driver(settings["lifeline"]))
    settle(settings["cores"])
    with socket.socket(fileno=settings["socket"]) as driver:
        driver.set_inheritable(False)
        with contextlib.suppress(EOFError, OSError):  # the driver has nothing more to ask
            _serve(driver)


def _leave(worker: int, guard: int) -> None:
    """The last act of a worker that ends by itself: no process that it has started stays behind."""
    if os.getpid() != worker:  # a fork of it ends
        return
    sys.stdout.flush()
    sys.stderr.flush()
    with contextlib.suppress(OSError):  # a careless os.wait() may have met the guard before
        os.kill(guard, signal.SIGKILL)
        os.waitpid(guard, 0)
    os.killpg(0, signal.SIGKILL)


def _serve(driver: socket.socket) -> None:
    def read(size: int) -> bytearray:
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            rest = rest[some(driver, rest) :]
        return data

    try:
        with without_collecting():
            function = receive(read)[1].open()()
        gc.freeze()
    except BaseException as error:
        send(driver, True, _report(error))
        return
    send(driver, False, Packet.of(None, "ready"))
    while True:
        send(driver, *_try(function, receive(read)[1]))


def _try(function: Callable[[Any], Any], request: Packet) -> tuple[bool, Packet]:
    try:
        return False, Packet.of(function(request.open()), "the answer")
    except BaseException as error:
        return True, _report(error)


def _report(error: BaseException) -> Packet:
    return Packet.of(described(error), "the error")
