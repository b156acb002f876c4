"""A few lasting processes that work off tasks; one that is lost costs a repetition of what it was doing."""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

from seamline.core.blocks import produced
from seamline.core.engine import Block as Bytes
from seamline.core.engine import Item, Result
from seamline.core.errors import WorkerError, WorkerLostError
from seamline.core.output import Stream, Teller
from seamline.core.packet import Packet
from seamline.engines.local.block import Block, Place
from seamline.engines.local.memory import Memory, forget_released
from seamline.engines.local.service import Service, ServiceError, ServiceLostError, close_all


@dataclass(frozen=True, slots=True)
class _Task:
    """One item on its way: where it is, and how often it may still be tried."""

    index: int
    request: Packet
    tries: int


class Pool:
    """At most ``size`` processes, started when there is work and kept until ``close``; calls take turns."""

    def __init__(self, size: int, threads: int, tell: Teller) -> None:
        self._size = size
        self._threads = threads
        self._tell = tell
        self._services: list[Service] = []
        self._turn = threading.Lock()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], retries: int) -> list[Result]:
        work = Block()
        try:
            function_place = work.store(function, "the function")
            places = [work.store(item, f"item {index}") for index, item in enumerate(items)]
            work.flush()
            memory = Memory.of(work.fd)
            requests = [Packet.of((memory, function_place, place), "a task") for place in places]
            with self._turn:
                return self._work_off([_Task(i, request, retries + 1) for i, request in enumerate(requests)])
        finally:
            work.close()

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Bytes]],
        items: Sequence[Item],
        consume: Callable[[int, list[Bytes]], Result],
        retries: int,
    ) -> list[Result]:
        """Through memory that is the driver's, but that only the tasks write and read."""
        rows = [Block() for _ in items]
        try:
            memories = [Memory.of(row.fd) for row in rows]
            give = functools.partial(_give, produce, len(rows))
            sizes = self.map(give, list(zip(memories, items, strict=True)), retries)
            take = functools.partial(_take, consume, memories, sizes)
            return self.map(take, range(len(rows)), retries)
        finally:
            for row in rows:
                row.close()

    def close(self) -> None:
        close_all(self._services)
        self._services.clear()

    def _work_off(self, tasks: list[_Task]) -> list[Any]:
        results: list[Any] = [None] * len(tasks)
        waiting = deque(tasks)
        running: dict[Future[Packet], tuple[_Task, Service]] = {}
        try:
            while waiting or running:
                busy = {service for _, service in running.values()}
                for service in self._idle(busy, len(waiting)):
                    task = waiting.popleft()
                    running[service.ask(task.request)] = task, service
                for answer in sorted(
                    wait(running, return_when=FIRST_COMPLETED).done, key=lambda a: running[a][0].index
                ):
                    task, _ = running.pop(answer)
                    again = _settle(task, answer, results)
                    if again is not None:
                        waiting.appendleft(again)
        finally:
            stragglers = [service for _, service in running.values()]
            close_all(stragglers)
            self._services = [service for service in self._services if service not in stragglers]
        return results

    def _idle(self, busy: set[Service], wanted: int) -> list[Service]:
        """Up to ``wanted`` processes without work; those that have died are replaced."""
        dead = [service for service in self._services if service.ended and service not in busy]
        close_all(dead)
        self._services = [service for service in self._services if service not in dead]
        idle = [service for service in self._services if service not in busy][:wanted]
        room = self._size - len(self._services)
        started = [self._start(len(self._services) + n) for n in range(min(room, wanted - len(idle)))]
        self._services += started
        return idle + started

    def _start(self, number: int) -> Service:
        def tell(_rank: int, stream: Stream, line: str) -> None:
            self._tell(number, stream, line)

        return Service(_serve, name=f"process {number}", threads=self._threads, ahead=1, tell=tell)


def _settle(task: _Task, answer: Future[Packet], results: list[Any]) -> _Task | None:
    """Keep the result; the task once more if its process was lost."""
    try:
        results[task.index] = answer.result().open()
    except ServiceLostError as error:
        if task.tries > 1:
            return _Task(task.index, task.request, task.tries - 1)
        raise WorkerLostError(task.index, f"item {task.index}: {error.traceback}, the last time it was tried") from None
    except ServiceError as error:
        raise WorkerError(task.index, error.traceback) from error.__cause__
    return None


def _serve() -> Callable[[tuple[Memory, Place, Place]], Any]:
    """What a process of the pool does with each request."""

    @functools.lru_cache(maxsize=1)
    def function_at(memory: Memory, place: Place) -> Callable[[Any], Any]:
        forget_released()
        function: Callable[[Any], Any] = memory.load(place)
        return function

    def call(request: tuple[Memory, Place, Place]) -> Any:
        memory, function, item = request
        return function_at(memory, function)(memory.load(item))

    return call


def _give(produce: Callable[[Item], Sequence[Bytes]], count: int, work: tuple[Memory, Item]) -> list[int]:
    """Write the blocks of one item one after the other, and return their sizes."""
    memory, item = work
    blocks = [memoryview(block).cast("B") for block in produced(produce, item, count)]
    with os.fdopen(memory.open(), "r+b") as file:
        file.truncate(0)  # a task that was lost may have written before
        for block in blocks:
            file.write(block)
    return [block.nbytes for block in blocks]


def _take(
    consume: Callable[[int, list[Bytes]], Result], memories: list[Memory], sizes: list[list[int]], number: int
) -> Result:
    """Read the blocks that are for one task."""
    blocks: list[Bytes] = []
    for memory, row in zip(memories, sizes, strict=True):
        with os.fdopen(memory.open(), "rb") as file:
            file.seek(sum(row[:number]))
            blocks.append(file.read(row[number]))
    return consume(number, blocks)
