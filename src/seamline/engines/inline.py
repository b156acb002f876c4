"""One worker, in the process that asked: breakpoints, prints and notebooks behave as always."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from seamline.core.blocks import produced
from seamline.core.engine import Block, Item, Listener, Replace, Result, Shard, Value
from seamline.core.errors import WorkerError
from seamline.core.failure import described
from seamline.core.world import Alone, World
from seamline.engines.mapped import MappedCollection


@dataclass(frozen=True, slots=True)
class InlineWorld(Alone):
    """A world of one whose reports go straight to the listener."""

    listen: Listener | None = None

    def report(self, message: object) -> None:
        if self.listen is not None:
            self.listen(0, message)


@dataclass(frozen=True, slots=True)
class InlineBroadcast(Generic[Value]):
    """The value itself: it is where the tasks are."""

    value: Value

    def release(self) -> None:
        """Nothing was taken."""


class InlineEngine:
    """Run the only worker here and now; its exceptions are the caller's. Tasks run one after the other."""

    name = "inline"

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
        replace: Replace | None = None,
    ) -> list[Result]:
        if len(shards) != 1:
            raise ValueError(f"the inline engine runs 1 worker, not {len(shards)}; use the local engine")
        return [task(InlineWorld(listen=listen), shards[0])]

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        return [_call(index, function, item) for index, item in enumerate(items)]

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        rows = self.map(lambda item: produced(produce, item, len(items)), items)
        columns = [[row[number] for row in rows] for number in range(len(items))]
        return self.map(lambda column: consume(*column), list(enumerate(columns)))

    def broadcast(self, value: Value) -> InlineBroadcast[Value]:
        return InlineBroadcast(value)

    def collection(self, items: Sequence[Any]) -> MappedCollection:
        return MappedCollection.of(self, items)

    def close(self) -> None:
        """Nothing outlives a call."""


def _call(index: int, function: Callable[[Item], Result], item: Item) -> Result:
    try:
        return function(item)
    except Exception as error:
        raise WorkerError(index, described(error)[0]) from error
