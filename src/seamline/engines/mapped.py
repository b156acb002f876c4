"""Collections whose shards the driver holds, for engines of one machine; ``Engine.map`` runs what is sent to them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from seamline.core import chain as chains
from seamline.core.chain import Chain, Gathered, Outcome, Pair, Scattering
from seamline.core.collection import Collection, Function, Gather, Scatter
from seamline.core.engine import Engine

Item = tuple[Outcome, ...]


class Left:
    """A shard that a task has left where others find it; every ``take`` gives a copy of one's own."""

    __slots__ = ()

    def take(self) -> Any:
        raise NotImplementedError


class Room(Protocol):
    """Where one task leaves what it has made; it travels to the task."""

    def leave(self, values: Sequence[Any]) -> Sequence[Left]: ...


class Shelf(Protocol):
    """Room for what several tasks leave, as long as somebody holds it."""

    def room(self, number: int) -> Room: ...

    def hold(self, left: Left) -> Left: ...


class MappedCollection:
    """Shards in the driver's memory.

    ``shelves`` makes room for tasks that run in other processes: what is kept or exchanged then stays in memory that
    all of them see, and the driver never touches it. Without it tasks run here, and each gets a copy, because
    functions may change what they are given.
    """

    def __init__(
        self, engine: Engine, items: Sequence[Item], chain: Chain, shelves: Callable[[], Shelf] | None = None
    ) -> None:
        self._engine = engine
        self._items = list(items)
        self._chain = chain
        self._shelves = shelves

    @classmethod
    def of(
        cls, engine: Engine, values: Sequence[Any], *, shelves: Callable[[], Shelf] | None = None
    ) -> MappedCollection:
        return cls(engine, [(Outcome(value),) for value in values], Chain(), shelves)

    @property
    def count(self) -> int:
        return len(self._items)

    def map(self, function: Function) -> MappedCollection:
        return self._with(self._items, self._chain.then(function))

    def zip(self, other: Collection) -> MappedCollection:
        if not isinstance(other, MappedCollection):
            raise TypeError("shards of two engines cannot be zipped; make both in the same context")
        items = [left + right for left, right in zip(self._items, other._items, strict=True)]
        return self._with(items, Chain(Pair(self._chain, other._chain)))

    def exchange(self, scatter: Scatter, count: int, gather: Gather) -> MappedCollection:
        rows = self._left_behind(Scattering(self._chain, scatter, count))
        columns = [tuple(row[number] for row in rows) for number in range(count)]
        return self._with(columns, Chain(Gathered(gather, self.count)))

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        chosen = range(self.count) if numbers is None else numbers
        items = [self._items[number] for number in chosen]
        if self._chain.idle:
            return chains.values([_own(leaf) for (leaf,) in items])
        tasks = [(number, item, None) for number, item in zip(chosen, items, strict=True)]
        return chains.values([outcome for (outcome,) in self._engine.map(self._task(self._chain), tasks)])

    def keep(self) -> MappedCollection:
        if self._chain.idle:
            return self
        kept = [outcome for (outcome,) in self._left_behind(self._chain)]
        chains.values(kept)
        return self._with([(outcome,) for outcome in kept], Chain())

    def release(self) -> None:
        """The memory goes with the object."""

    def _with(self, items: Sequence[Item], chain: Chain) -> MappedCollection:
        return MappedCollection(self._engine, items, chain, self._shelves)

    def _task(self, work: Chain | Scattering) -> _Task:
        return _Task(work, here=self._shelves is None)

    def _left_behind(self, work: Chain | Scattering) -> list[list[Outcome]]:
        """The outcomes of each task, which stay where the tasks have left them."""
        shelf = self._shelves() if self._shelves else None
        rooms = [shelf.room(number) if shelf else None for number in range(self.count)]
        tasks = list(zip(range(self.count), self._items, rooms, strict=True))
        results = self._engine.map(self._task(work), tasks)
        if shelf is None:
            return results
        return [[replace(o, value=shelf.hold(o.value)) if _is_left(o) else o for o in each] for each in results]


@dataclass(frozen=True, slots=True)
class _Task:
    """A chain, called with a number, an item, and the room for what comes out."""

    work: Chain | Scattering
    here: bool
    """Whether it runs in the driver, where shards are not copies already."""

    def __call__(self, task: tuple[int, Item, Room | None]) -> list[Outcome]:
        index, leaves, room = task
        done = self.work.run(index, [_own(leaf) if self.here or _is_left(leaf) else leaf for leaf in leaves])
        outcomes = done if isinstance(done, list) else [done]
        if room is None:
            return outcomes
        good = [outcome for outcome in outcomes if outcome.failure is None]
        left = iter(room.leave([outcome.value for outcome in good]))
        return [replace(o, value=next(left)) if o.failure is None else o for o in outcomes]


def _own(outcome: Outcome) -> Outcome:
    """The same with a shard that may be changed."""
    value = outcome.value
    return replace(outcome, value=value.take() if isinstance(value, Left) else copy.deepcopy(value))


def _is_left(outcome: Outcome) -> bool:
    return isinstance(outcome.value, Left)
