"""The protocol that every engine implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from seamline.core.world import World

Shard = TypeVar("Shard")
Result = TypeVar("Result")

Listener = Callable[[int, object], None]
"""Called on the driver with a worker's rank and what it reported."""


class Engine(Protocol):
    """Somewhere that runs the same function on several workers at once."""

    name: str

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
    ) -> list[Result]:
        """Run ``task(world, shard)`` once for each shard, all at the same time.

        Results come back in rank order. When a worker raises or dies, the others are stopped and
        ``WorkerError`` carries the rank and the traceback of the one that failed first.
        """
        ...

    def close(self) -> None:
        """Give back what the engine started; leave alone what it was handed."""
        ...
