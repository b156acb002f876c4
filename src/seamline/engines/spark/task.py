"""What a task that never meets others does in Spark's Python process, which serves one task after the other."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from seamline.core.blocks import produced
from seamline.core.failure import described
from seamline.core.packet import Packet, Part
from seamline.engines.spark import broadcast
from seamline.engines.spark.wire import Kind, Role, Wire, call


@dataclass(frozen=True, slots=True)
class Work:
    """A function and its items, packed, and Spark's handles of the broadcasts that they mention."""

    function: tuple[Part, ...]
    items: list[tuple[Part, ...]]
    broadcasts: list[Any]

    @classmethod
    def of(cls, function: object, what: str, items: list[Any]) -> Work:
        with broadcast.used() as used:
            body = Packet.of(function, what).parts
            parts = [Packet.of(item, f"item {index}").parts for index, item in enumerate(items)]
        return cls(body, parts, list(used.values()))

    def packet(self, number: int) -> Packet | None:
        """An item, and behind the last one the function."""
        if number > len(self.items):
            return None
        return Packet(self.function if number == len(self.items) else self.items[number])


@dataclass(frozen=True, slots=True)
class TaskOrders:
    """What each task is told by the driver."""

    address: tuple[str, int]
    token: bytes
    size: int
    function: tuple[Part, ...] = ()

    def given(self, work: Work) -> TaskOrders:
        """The same with the function, where it travels with them."""
        return replace(self, function=work.function)


def map_item(orders: TaskOrders, _index: int, part: Iterator[Any]) -> Iterator[Any]:
    """Call the function with the only item of this partition."""
    for number, item in part:
        _answer(orders, number, functools.partial(_call, orders, item))
    return iter(())


def _call(orders: TaskOrders, item: tuple[Part, ...]) -> Any:
    return Packet(orders.function).open()(Packet(item).open())


def produce_blocks(orders: TaskOrders, _index: int, part: Iterator[Any]) -> Iterator[Any]:
    """One record for each consumer: its number, and who gives it which bytes."""
    for number, item in part:
        broadcast.forget_released()
        try:
            produce = Packet(orders.function).open()[0]
            blocks = produced(produce, Packet(item).open(), orders.size)
        except Exception as error:
            with _connected(orders, orders.size + number) as driver:
                driver.send(Kind.FAILED, Packet.of(described(error), "the error"))
            return
        for consumer, block in enumerate(blocks):
            yield consumer, (number, bytes(block))


def consume_blocks(orders: TaskOrders, index: int, part: Iterator[Any]) -> Iterator[Any]:
    """Give the blocks of all producers to the consumer, in their order."""
    blocks = dict(record for _, record in part)
    if len(blocks) == orders.size:  # fewer: a producer has failed, and has said so
        ordered = [blocks[producer] for producer in range(orders.size)]
        _answer(orders, index, lambda: Packet(orders.function).open()[1](index, ordered))
    return iter(())


def _answer(orders: TaskOrders, number: int, work: Callable[[], Any]) -> None:
    """Do the work and send the result or the error, unless the driver has no use for either."""
    broadcast.forget_released()
    with contextlib.suppress(EOFError, ConnectionError), _connected(orders, number) as driver:
        try:
            kind, answer = Kind.DONE, Packet.of(work(), "the result", copy=False)
        except Exception as error:
            kind, answer = Kind.FAILED, Packet.of(described(error), "the error")
        driver.send(kind, answer)


@contextlib.contextmanager
def _connected(orders: TaskOrders, number: int) -> Iterator[Wire]:
    """A connection to the driver; this process ends at once when the driver hangs up in the middle of the work."""
    driver = call(orders.address, orders.token, Role.TASK, number)
    working = threading.Event()
    working.set()

    def end_with_driver() -> None:
        with contextlib.suppress(EOFError, OSError, ValueError):
            driver.receive()
        if working.is_set():
            os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=end_with_driver, daemon=True).start()
    try:
        yield driver
    finally:
        working.clear()
        driver.close()
