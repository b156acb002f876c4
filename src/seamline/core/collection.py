"""Objects that lie apart, and functions that are sent to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Function = Callable[[int, Any], Any]
"""Called with the number of a shard and the shard, where the shard lies."""

Scatter = Callable[[int, Any], Sequence[Any]]
"""Called with the number of a shard and the shard; gives one piece to each of the new shards."""

Gather = Callable[[int, list[Any]], Any]
"""Called with the number of a new shard and its pieces, in the order of the shards that they come from."""


class Collection(Protocol):
    """Shards with numbers from 0 on, each a Python object somewhere; nothing is computed before somebody asks.

    A function that raises ends in ``ShardError`` for the one who asks; it is not tried again. One whose process is
    lost is, as often as the engine repeats a task.
    """

    @property
    def count(self) -> int:
        """How many shards there are."""
        ...

    def map(self, function: Function) -> Collection:
        """The shards that ``function`` makes of these; functions that follow each other run in one task."""
        ...

    def zip(self, other: Collection) -> Collection:
        """Pairs of the shards with the same number; ``other`` is of the same engine and has as many."""
        ...

    def exchange(self, scatter: Scatter, count: int, gather: Gather) -> Collection:
        """``count`` new shards, each made of one piece of every shard: the engine's own shuffle."""
        ...

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        """The shards, or those with these numbers, here."""
        ...

    def keep(self) -> Collection:
        """The same shards, computed at most once and then kept where they are, as long as the result is."""
        ...

    def release(self) -> None:
        """Give up what ``keep`` has kept, once nobody asks for it any more. Twice is as good as once."""
        ...


class Library(Protocol):
    """An engine with tables of its own, which become collections of Arrow tables and back."""

    def adopt(self, table: Any) -> Collection:
        """The partitions of a table as Arrow tables, where they lie."""
        ...

    def native(self, tables: Collection, schema: Any) -> Any:
        """A table of the engine's own library from Arrow tables of one schema, wherever they lie."""
        ...
