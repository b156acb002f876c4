"""Tasks that never meet: each tells the driver its result itself, so that one loss costs one task."""

from __future__ import annotations

import queue
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from seamline.core.engine import Block, Item, Result
from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.failure import restored
from seamline.core.packet import Packet
from seamline.engines.spark import broadcast, slots
from seamline.engines.spark.boot import Entry, remote
from seamline.engines.spark.hub import Hub, Message
from seamline.engines.spark.job import Job
from seamline.engines.spark.task import TaskOrders, consume_blocks, map_item, produce_blocks
from seamline.engines.spark.wire import Kind, Role, Wire

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_EVERY_S = 0.05
_EXCHANGE_RETRIES = 3

Submit = Callable[[TaskOrders, list[int]], Callable[[], Any]]
"""A Spark action for the tasks of these numbers."""


def map(context: SparkContext, function: Callable[[Item], Result], items: list[Item], retries: int) -> list[Result]:
    """One Spark task for each item.

    In local mode Spark gives a whole job up when it loses one task, unless its master is like ``local[4,3]``; each
    item is then a job of its own.
    """
    with broadcast.used() as broadcasts:
        body = Packet.of(function, "the function").parts
        parts = [Packet.of(item, f"item {index}").parts for index, item in enumerate(items)]

    def submit(orders: TaskOrders, numbers: list[int]) -> Callable[[], Any]:
        data = context.parallelize([(number, parts[number]) for number in numbers], len(numbers))
        return data.mapPartitionsWithIndex(_remote(map_item, orders, broadcasts)).collect

    together = slots.retries_tasks(context)
    batches = [list(range(len(items)))] if together else [[index] for index in range(len(items))]
    return _Tasks(context, body, len(items), retries).run(submit, batches, 1 if together else slots.total(context))


def exchange(
    context: SparkContext,
    produce: Callable[[Item], Sequence[Block]],
    items: list[Item],
    consume: Callable[[int, list[Block]], Result],
) -> list[Result]:
    """One Spark shuffle; a job that Spark gives up because of a loss is started again."""
    size = len(items)
    with broadcast.used() as broadcasts:
        body = Packet.of((produce, consume), "produce or consume").parts
        parts = [Packet.of(item, f"item {index}").parts for index, item in enumerate(items)]

    def submit(orders: TaskOrders, _numbers: list[int]) -> Callable[[], Any]:
        data = context.parallelize(list(enumerate(parts)), size)
        given = data.mapPartitionsWithIndex(_remote(produce_blocks, orders, broadcasts))
        taken = given.partitionBy(size, _itself)
        return taken.mapPartitionsWithIndex(_remote(consume_blocks, orders, broadcasts)).collect

    return _Tasks(context, body, size, _EXCHANGE_RETRIES).run(submit, [list(range(size))], 1)


class _Tasks:
    """The driver's side of one ``map`` or ``exchange``."""

    def __init__(self, context: SparkContext, body: tuple[Any, ...], size: int, retries: int) -> None:
        self._context = context
        self._body = body
        self._size = size
        self._retries = retries
        self._results: dict[int, Packet] = {}
        self._losses: Counter[int] = Counter()
        self._running: list[tuple[Job, list[int]]] = []

    def run(self, submit: Submit, batches: Iterable[list[int]], at_a_time: int) -> list[Any]:
        """The results in order. Each batch is a Spark job, and so many jobs run at a time."""
        if self._size == 0:
            return []
        host, advertised = slots.addresses(self._context)
        hub = Hub(host, self._welcome, advertised=advertised)
        orders = TaskOrders(hub.address, hub.token, self._size, self._body)
        pending = deque(batches)
        tries: Counter[int] = Counter()
        try:
            while len(self._results) < self._size:
                while pending and len([batch for _, batch in self._running if self._misses(batch)]) < at_a_time:
                    numbers = pending.popleft()
                    tries[numbers[0]] += 1
                    job = Job(self._context, f"seamline: {len(numbers)} tasks", submit(orders, numbers))
                    self._running.append((job, numbers))
                self._hear(hub)
                for job, numbers in self._given_up(hub):
                    if tries[numbers[0]] > self._retries:
                        raise WorkerError(numbers[0], f"Spark gave up: {job.reason()}")
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
                raise WorkerError(
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


def _remote(entry: Entry, orders: TaskOrders, broadcasts: dict[int, Any]) -> Any:
    return remote(entry, orders, list(broadcasts.values()))


def _itself(number: int) -> int:
    return number
