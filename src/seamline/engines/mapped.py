"""Collections whose shards the driver holds, for engines of one machine; ``Engine.map`` runs what is sent to them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seamline.core import chain as chains
from seamline.core.chain import Chain, Gathered, Outcome, Pair, Scattering
from seamline.core.collection import Collection, Function, Gather, Scatter
from seamline.core.engine import Engine

Item = tuple[Outcome, ...]


class MappedCollection:
    """Shards in the driver's memory.

    ``apart`` says that tasks run in other processes and so work on copies; otherwise each gets a copy here, because
    functions may change what they are given.
    """

    def __init__(self, engine: Engine, items: Sequence[Item], chain: Chain, *, apart: bool) -> None:
        self._engine = engine
        self._items = list(items)
        self._chain = chain
        self._apart = apart

    @classmethod
    def of(cls, engine: Engine, values: Sequence[Any], *, apart: bool) -> MappedCollection:
        return cls(engine, [(Outcome(value),) for value in values], Chain(), apart=apart)

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
        rows = self._run(Scattering(self._chain, scatter, count), range(self.count))
        columns = [tuple(row[number] for row in rows) for number in range(count)]
        return self._with(columns, Chain(Gathered(gather, self.count)))

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        chosen = range(self.count) if numbers is None else numbers
        return chains.values(self._run(self._chain, chosen))

    def keep(self) -> MappedCollection:
        if self._chain.idle:
            return self
        kept = self._run(self._chain, range(self.count))
        chains.values(kept)
        return self._with([(outcome,) for outcome in kept], Chain())

    def release(self) -> None:
        """The memory goes with the object."""

    def _with(self, items: Sequence[Item], chain: Chain) -> MappedCollection:
        return MappedCollection(self._engine, items, chain, apart=self._apart)

    def _run(self, work: Chain | Scattering, numbers: Sequence[int]) -> list[Any]:
        items = [(number, self._items[number]) for number in numbers]
        if isinstance(work, Chain) and work.idle:
            return [copy.deepcopy(item[0]) for _, item in items]
        return self._engine.map(_Task(work, copies=not self._apart), items)


@dataclass(frozen=True, slots=True)
class _Task:
    """A chain, called with a number and an item."""

    work: Chain | Scattering
    copies: bool

    def __call__(self, item: tuple[int, Item]) -> Any:
        index, leaves = item
        return self.work.run(index, copy.deepcopy(leaves) if self.copies else leaves)
