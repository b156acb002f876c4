"""Shards that are known by how they are made: a plan, carried out when somebody asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from seamline.core.collection import Collection, Function
from seamline.core.errors import UnpicklableError
from seamline.orca.xshards.home import Home

Plan = Callable[[], Collection]
P = TypeVar("P", bound="Planned")


class Planned:
    """A plan for ``count`` shards; carrying it out gives a collection, which is still lazy where the engine is."""

    def __init__(self, home: Home, count: int, plan: Plan) -> None:
        self._home = home
        self._count = count
        self._plan = plan
        self._made: Collection | None = None
        self._kept: Collection | None = None
        self._keeping = False
        self._zipped = False

    def __reduce__(self) -> NoReturn:
        raise UnpicklableError(
            "XShards cannot travel to shards, as they are made of them; zip or merge the two, or give the function "
            "what to_pandas() or collect() returns"
        )

    @property
    def _collection(self) -> Collection:
        self._home.check()
        if self._kept is not None:
            return self._kept
        if self._made is None:
            self._made = self._plan()
        if self._keeping:
            self._kept = self._made.keep()
        return self._kept or self._made

    def _then(self: P, function: Function, *, zipped: bool = False) -> P:
        """The shards that a function makes of these."""
        new = self._new(self._count, lambda: self._collection.map(function))
        new._zipped = zipped
        return new

    def _new(self: P, count: int, plan: Plan) -> P:
        return type(self)(self._home, count, plan)

    def _computed(self, function: Function) -> list[Any]:
        """What a function says of each shard."""
        return self._collection.map(function).collect()


def at_least_one(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}")
    return value
