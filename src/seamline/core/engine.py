"""The protocol that every engine implements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from seamline.core.collection import Collection
from seamline.core.errors import WorkerLostError
from seamline.core.world import World

Shard = TypeVar("Shard")
Item = TypeVar("Item")
Result = TypeVar("Result")
Value = TypeVar("Value")
Held = TypeVar("Held", covariant=True)

Block = bytes | bytearray | memoryview
"""Bytes on their way from one task to another."""

Listener = Callable[[int, object], None]
"""Called on the driver with a worker's rank and what it reported."""

Replace = Callable[[WorkerLostError], bool]
"""Called on the driver when a worker is lost: whether another should take its place."""


class Broadcast(Protocol[Held]):
    """A value that tasks read where they run; the handle pickles, and the value does not travel with it."""

    @property
    def value(self) -> Held:
        """The value, fetched once by each process and kept; to be read, not to be changed."""
        ...

    def release(self) -> None:
        """Give the value back, on the driver; afterwards no task may ask for it. Twice is as good as once."""
        ...


class Engine(Protocol):
    """Somewhere that runs functions on other processes: one gang that meets, or many tasks that never do."""

    name: str

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
        replace: Replace | None = None,
    ) -> list[Result]:
        """Run ``task(world, shard)`` once for each shard, all at the same time.

        Results come back in rank order. When a worker raises or dies, the others are stopped and
        ``WorkerError`` carries the rank and the traceback of the one that failed first. An engine that can start a
        single worker asks ``replace`` first when one was lost; if another may take its place, the others stay, hear of
        the loss by ``PeerLostError``, and meet it after ``World.renew``.
        """
        ...

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        """Call ``function(item)`` for each item, as many at a time as there is room for; results in order.

        A task must not depend on another, and may run again: one whose process is lost is, alone, at most ``retries``
        times. An exception that the function raises is its answer: the tasks that still run are stopped, and
        ``WorkerError`` carries the item's index as ``rank``, the traceback, and the exception as ``__cause__``.
        """
        ...

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        """Let each of n tasks give a block of bytes to each of n others: a shuffle.

        ``produce(item)`` gives n blocks. Block j of every task, in the order of the items, goes to
        ``consume(j, blocks)``, whose results come back in order. Failures are those of ``map``, with the index of the
        item or j as ``rank``. A lost task is computed again by the engine, and so are the blocks that went with it.
        """
        ...

    def broadcast(self, value: Value) -> Broadcast[Value]:
        """Put a value where every task can read it, once, whatever the number of tasks that do."""
        ...

    def collection(self, items: Sequence[Any]) -> Collection:
        """One shard for each item, where this engine keeps shards."""
        ...

    def close(self) -> None:
        """Give back what the engine started; leave alone what it was handed."""
        ...
