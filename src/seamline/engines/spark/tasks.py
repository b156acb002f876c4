"""Tasks that never meet: each tells the driver its result itself, so that one loss costs one task."""

from __future__ import annotations

import queue
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from seamline.core.engine import Block, Item, Result
from seamline.core.errors import SeamlineError, WorkerError, WorkerLostError
from seamline.core.failure import restored
from seamline.core.packet import Packet
from seamline.engines.spark import slots
from seamline.engines.spark.access import Access
from seamline.engines.spark.hub import Hub, Message
from seamline.engines.spark.job import Job
from seamline.engines.spark.task import TaskOrders, Work
from seamline.engines.spark.wire import Kind, Role, Wire

_LOOK_EVERY_S = 0.05
_EXCHANGE_RETRIES = 3

Submit = Callable[[TaskOrders, list[int]], Job]
"""Starts a Spark job for the tasks of these numbers."""


def map(access: Access, function: Callable[[Item], Result], items: list[Item], retries: int) -> list[Result]:
    """One Spark task for each item.

    In local mode Spark gives a whole job up when it loses one task, unless its master is like ``local[4,3]``; each
    item is then a job of its own.
    """
    work = Work.of(function, "the function", items)

    def submit(orders: TaskOrders, numbers: list[int]) -> Job:
        return access.map(orders, work, numbers)

    together = slots.retries_tasks(access.setting)
    batches = [list(range(len(items)))] if together else [[index] for index in range(len(items))]
    return _Tasks(access, work, retries).run(submit, batches, 1 if together else access.slots())


def exchange(
    access: Access,
    produce: Callable[[Item], Sequence[Block]],
    items: list[Item],
    consume: Callable[[int, list[Block]], Result],
) -> list[Result]:
    """One Spark shuffle; a job that Spark gives up because of a loss is started again."""
    work = Work.of((produce, consume), "produce or consume", items)

    def submit(orders: TaskOrders, _numbers: list[int]) -> Job:
        return access.exchange(orders, work)

    return _Tasks(access, work, _EXCHANGE_RETRIES).run(submit, [list(range(len(items)))], 1)


class _Tasks:
    """The driver's side of one ``map`` or ``exchange``."""

    def __init__(self, access: Access, work: Work, retries: int) -> None:
        self._access = access
        self._work = work
        self._size = len(work.items)
        self._retries = retries
        self._results: dict[int, Packet] = {}
        self._losses: Counter[int] = Counter()
        self._running: list[tuple[Job, list[int]]] = []

    def run(self, submit: Submit, batches: Iterable[list[int]], at_a_time: int) -> list[Any]:
        """The results in order. Each batch is a Spark job, and so many jobs run at a time."""
        if self._size == 0:
            return []
        host, advertised = self._access.addresses
        hub = Hub(host, self._welcome, advertised=advertised)
        orders = TaskOrders(hub.address, hub.token, self._size)
        pending = deque(batches)
        tries: Counter[int] = Counter()
        try:
            while len(self._results) < self._size:
                while pending and len([batch for _, batch in self._running if self._misses(batch)]) < at_a_time:
                    numbers = pending.popleft()
                    tries[numbers[0]] += 1
                    self._running.append((submit(orders, numbers), numbers))
                self._hear(hub)
                for job, numbers in self._given_up(hub):
                    if tries[numbers[0]] > self._retries:
                        failure = WorkerLostError if job.lost else WorkerError
                        raise failure(numbers[0], f"Spark gave up: {job.reason()}")
                    pending.append(numbers)
            return [self._results[number].open() for number in range(self._size)]
        finally:
            done = len(self._results) == self._size
            for job, _ in self._running:
                if not (done and job.wait(1.0)):
                    job.cancel()
            hub.close()
            for job, _ in self._running:
                job.wait(4.0)

    def _welcome(self, role: Role, number: int, wire: Wire) -> list[Packet] | None:
        """A task that is done or has been lost too often is not run again, whatever Spark thinks."""
        if role is Role.READER:
            packet = self._work.packet(number)
            return None if packet is None else [packet]
        known = number < 2 * self._size and role is Role.TASK
        return [] if known and number not in self._results and self._losses[number] <= self._retries else None

    def _hear(self, hub: Hub) -> None:
        try:
            message = hub.inbox.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            return
        number = message.number
        if message.kind is Kind.DONE:
            self._results.setdefault(number, message.body)
        elif message.kind is Kind.FAILED:
            raise self._failure(message)
        elif message.kind is None and number not in self._results:
            self._losses[number] += 1
            if self._losses[number] > self._retries:
                times = "once" if self._losses[number] == 1 else f"{self._losses[number]} times"
                raise WorkerLostError(
                    number % self._size,
                    f"its process was killed or lost {times} before it had a result "
                    "(when memory runs out the system does this: try fewer tasks at a time)",
                )

    def _failure(self, message: Message) -> WorkerError:
        text, body = message.body.open()
        failure = WorkerError(message.number % self._size, text)
        failure.__cause__ = restored(body)
        return failure

    def _given_up(self, hub: Hub) -> list[tuple[Job, list[int]]]:
        """Jobs that have ended without the results of all their tasks, once all that was said has been heard."""
        if not hub.inbox.empty():
            return []
        ended = [(job, numbers) for job, numbers in self._running if job.ended]
        if not hub.inbox.empty():
            return []
        self._running = [pair for pair in self._running if pair not in ended]
        for job, _ in ended:
            for said in job.answer or []:
                raise SeamlineError(said)
        return [(job, numbers) for job, numbers in ended if self._misses(numbers)]

    def _misses(self, numbers: list[int]) -> bool:
        return any(number not in self._results for number in numbers)
