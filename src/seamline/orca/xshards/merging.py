"""Joins of two tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import pandas as pd

from seamline.core.collection import Collection
from seamline.orca.xshards import frames, moves
from seamline.orca.xshards.frames import Names
from seamline.orca.xshards.survey import Survey, surveyed

_SIDE = "\0side"

How = Literal["inner", "left", "right", "outer"]


@dataclass(frozen=True, slots=True)
class Keys:
    """What was asked for."""

    how: How
    on: Names | None
    left_on: Names | None
    right_on: Names | None
    suffixes: tuple[str, str]

    def __post_init__(self) -> None:
        if self.how not in get_args(How):
            raise ValueError(f"how must be one of {', '.join(get_args(How))}, but got how={self.how!r}")
        if (self.left_on is None) != (self.right_on is None) or (self.on is not None and self.left_on is not None):
            raise ValueError("give on=, or left_on= and right_on=")

    def chosen(self, left: Survey, right: Survey) -> tuple[list[str], list[str]]:
        """The names of the keys on both sides."""
        if self.left_on is not None and self.right_on is not None:
            names = frames.need(left.columns, self.left_on), frames.need(right.columns, self.right_on)
            if len(names[0]) != len(names[1]):
                raise ValueError(f"left_on has {len(names[0])} columns and right_on {len(names[1])}; give as many")
            return names
        on = self.on if self.on is not None else [name for name in left.columns if name in right.columns]
        if not frames.named(on):
            raise ValueError("the tables have no column in common; give left_on= and right_on=")
        return frames.need(left.columns, on), frames.need(right.columns, on)

    def sample(self, side: Names | None) -> Names | None:
        """Columns that are enough to find the keys of one side in; ``None`` where that may be any."""
        return side if side is not None else self.on


def count(keys: Keys, left: int, right: int) -> int:
    """How many shards come out: as many as there are of the side whose order counts."""
    return {"inner": left, "left": left, "right": right, "outer": max(left, right)}[keys.how]


def merged(left: Collection, right: Collection, keys: Keys) -> Collection:
    """Rows with the same key meet in one shard and are joined there by pandas.

    For an outer join they travel by range, so the result is in the order of the keys. Otherwise they travel by hash,
    and what was joined goes back to the place of the row whose order counts.
    """
    by_range = keys.how == "outer"
    left, left_survey = surveyed(left, keys.sample(keys.left_on) if by_range else ())
    right, right_survey = surveyed(right, keys.sample(keys.right_on) if by_range else ())
    names = keys.chosen(left_survey, right_survey)
    join = Join(tuple(names[0]), tuple(names[1]), keys.how, keys.suffixes, names[0] == names[1])
    join(0, (left_survey.kinds, right_survey.kinds))  # refuses here what pandas refuses
    compared = _compared(left_survey.kinds[names[0]], right_survey.kinds[names[1]])
    buckets = max(left.count, right.count)
    if by_range:
        ways = (True,) * len(names[0])
        sides = [(left, names[0]), (right, names[1])]
        bounds = moves.ranges([(left_survey, names[0]), (right_survey, names[1])], compared, ways, buckets)
        one, other = (
            side.exchange(moves.ByRange(tuple(by), ways, bounds, buckets), buckets, moves.to_frames)
            for side, by in sides
        )
        return one.zip(other).map(join)
    of_right = keys.how == "right"
    left, right = (left, right.map(moves.placed)) if of_right else (left.map(moves.placed), right)
    lefts = left.exchange(moves.ByHash(tuple(names[0]), compared, buckets), buckets, moves.to_frames)
    rights = right.exchange(moves.ByHash(tuple(names[1]), compared, buckets), buckets, moves.to_frames)
    home = right.count if of_right else left.count
    return lefts.zip(rights).map(join).exchange(moves.Home(home), home, moves.at_home)


@dataclass(frozen=True, slots=True)
class Join:
    """Pandas' own join of a pair of frames; columns that say where a row was stay as they are."""

    left_on: tuple[Any, ...]
    right_on: tuple[Any, ...]
    how: How
    suffixes: tuple[str, str]
    common: bool

    def __call__(self, _index: int, pair: Any) -> pd.DataFrame:
        left, right = pair
        if self.how == "outer":
            return self._in_order(left, right)
        return self._merged(left, right)

    def _in_order(self, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
        """Pandas puts null times and null categories first here and other nulls last; we put all of them last."""
        names = range(len(self.left_on))
        copies = [f"\0{side}{name}" for side in "lr" for name in names]
        merged = self._merged(
            left.assign(**{f"\0l{name}": left[self.left_on[name]] for name in names}),
            right.assign(**{f"\0r{name}": right[self.right_on[name]] for name in names}),
            indicator=_SIDE,
        )
        of_left = merged[_SIDE] != "right_only"
        keys = pd.concat([_either(merged[f"\0l{name}"], merged[f"\0r{name}"], of_left) for name in names], axis=1)
        order = moves.in_order(keys.set_axis(names, axis=1), list(names), [True] * len(names))
        return merged.drop(columns=[*copies, _SIDE]).take(order).reset_index(drop=True)

    def _merged(self, left: pd.DataFrame, right: pd.DataFrame, **more: Any) -> pd.DataFrame:
        keys: dict[str, Any] = (
            {"on": list(self.left_on)}
            if self.common
            else {"left_on": list(self.left_on), "right_on": list(self.right_on)}
        )
        return pd.merge(left, right, how=self.how, suffixes=self.suffixes, **keys, **more)


def _compared(left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """The keys, without rows, in types that both sides have in common."""
    columns = {}
    for number, (one, other) in enumerate(zip(left.columns, right.columns, strict=True)):
        pair = [left[one], right[other]]
        if pair[0].dtype != pair[1].dtype:
            pair = [_plain(column) for column in pair]
        columns[number] = pair[0] if pair[0].dtype == pair[1].dtype else pd.concat(pair, ignore_index=True)
    return pd.DataFrame(columns)


def _either(left: Any, right: Any, of_left: Any) -> Any:
    if left.dtype == right.dtype:
        return left.where(of_left, right)
    return left.astype(object).where(of_left, right.astype(object)).infer_objects()


def _plain(column: Any) -> Any:
    kind = column.dtype
    return column.astype(kind.categories.dtype) if isinstance(kind, pd.CategoricalDtype) else column
