"""Groups and their aggregates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from seamline.core.collection import Collection
from seamline.orca.xshards import frames, moves
from seamline.orca.xshards.survey import Survey

_COMBINE = {
    "count": "sum", "size": "sum", "sum": "sum", "min": "min", "max": "max",
    "any": "any", "all": "all", "first": "first", "last": "last",
}  # fmt: skip
"""Functions of which each shard computes its part, and how the parts become the whole."""
_NUMBERS = "iub"
"""Types whose sums are exact in any order, and float64, whose sums are so to the last digits."""


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A column of the result: its name, and which function of which column it is."""

    name: Any
    column: Any
    function: str | Callable[..., Any]


def grouped(shards: Collection, survey: Survey, columns: frames.Names, agg: Any, count: int) -> Collection:
    """Where functions allow it, each shard is aggregated before anything travels, and what travels is aggregated again.

    Keys travel by range, so the groups of all shards are in the order of the keys.
    """
    keys = frames.need(survey.columns, columns)
    aggregates = named_aggregates(survey.kinds, keys, agg)
    whole = Grouping(tuple(keys), tuple(aggregates))
    first: Any = Filled(tuple(keys))
    last: Any = whole
    if _combinable(survey.kinds, aggregates):
        first, last = _halves(whole)
    small = shards.map(first)
    bounds = moves.ranges([(survey, keys)], survey.kinds[keys], [True] * len(keys), count)
    move = moves.ByRange(tuple(keys), (True,) * len(keys), bounds, count)
    return small.exchange(move, count, moves.to_frames).map(last)


def named_aggregates(kinds: pd.DataFrame, keys: Sequence[Any], agg: Any) -> list[Aggregate]:
    """What was asked for, in one form."""
    if not isinstance(agg, Mapping):
        agg = {name: agg for name in kinds.columns if name not in keys}
    found: list[Aggregate] = []
    for name, asked in agg.items():
        if isinstance(asked, tuple):
            column, function = asked
            found.append(Aggregate(name, column, function))
        elif isinstance(asked, list):
            found += [Aggregate(f"{name}_{_word(function)}", name, function) for function in asked]
        else:
            found.append(Aggregate(name, name, asked))
    if not found:
        raise ValueError("there is nothing to aggregate; give agg={'column': 'sum'} or the like")
    frames.need(kinds.columns, [aggregate.column for aggregate in found])
    names = [*keys, *(aggregate.name for aggregate in found)]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the result would have two columns {twice!r}; name one by agg={{'name': (column, function)}}")
    return found


@dataclass(frozen=True, slots=True)
class Grouping:
    """The groups of a frame that has all of their rows."""

    keys: tuple[Any, ...]
    aggregates: tuple[Aggregate, ...]

    def __call__(self, _index: int, frame: pd.DataFrame) -> pd.DataFrame:
        groups = frame.groupby(list(self.keys), sort=True, dropna=True, observed=True)
        columns = [_aggregated(groups, each) for each in self.aggregates]
        result = pd.concat(columns, axis=1).set_axis(range(len(columns)), axis=1)
        named = [*self.keys, *(each.name for each in self.aggregates)]
        table: pd.DataFrame = result.reset_index().set_axis(named, axis=1)
        return table


@dataclass(frozen=True, slots=True)
class Filled:
    """The rows that belong to a group."""

    keys: tuple[Any, ...]

    def __call__(self, _index: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.dropna(subset=list(self.keys))


@dataclass(frozen=True, slots=True)
class Combining:
    """The last half of a grouping: parts of each group become one, and a sum and a count become a mean."""

    grouping: Grouping
    means: tuple[tuple[str, str, str], ...]
    names: tuple[Any, ...]

    def __call__(self, index: int, frame: pd.DataFrame) -> pd.DataFrame:
        result = self.grouping(index, frame)
        for name, total, count in self.means:
            result[name] = (result[total] / result[count]).astype(np.float64)
        keys = list(self.grouping.keys)
        ordered = result[[*keys, *(_held(number) for number in range(len(self.names)))]]
        return ordered.set_axis([*keys, *self.names], axis=1)


def _aggregated(groups: Any, aggregate: Aggregate) -> Any:
    if aggregate.function == "size":
        return groups.size()
    return groups[aggregate.column].agg(aggregate.function)


def _halves(whole: Grouping) -> tuple[Grouping, Combining]:
    """What each shard computes, and what is computed of that."""
    parts: list[Aggregate] = []
    combine: list[Aggregate] = []
    means: list[tuple[str, str, str]] = []
    for number, each in enumerate(whole.aggregates):
        held = _held(number)
        wanted = {held: str(each.function)}
        if each.function == "mean":
            wanted = {f"{held} sum": "sum", f"{held} count": "count"}
            means.append((held, *wanted))  # type: ignore[arg-type]
        parts += [Aggregate(name, each.column, function) for name, function in wanted.items()]
        combine += [Aggregate(name, name, _COMBINE[function]) for name, function in wanted.items()]
    names = tuple(each.name for each in whole.aggregates)
    return Grouping(whole.keys, tuple(parts)), Combining(Grouping(whole.keys, tuple(combine)), tuple(means), names)


def _held(number: int) -> str:
    """The name of a column on its way."""
    return f"\0{number}"


def _combinable(kinds: pd.DataFrame, aggregates: Sequence[Aggregate]) -> bool:
    return all(_combines(kinds[each.column].dtype, each.function) for each in aggregates)


def _combines(kind: Any, function: Any) -> bool:
    if function in ("sum", "mean"):
        return isinstance(kind, np.dtype) and (kind.kind in _NUMBERS or kind == np.float64)
    return isinstance(function, str) and function in _COMBINE


def _word(function: Any) -> str:
    return function if isinstance(function, str) else str(function.__name__)
