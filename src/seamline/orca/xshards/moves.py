"""Rows on their way from shard to shard: to even shards, by hash, by range, and back to where they came from."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from seamline.core.collection import Collection
from seamline.orca.xshards import pieces
from seamline.orca.xshards.survey import Survey

SHARD, ROW = "\0shard", "\0row"
"""Columns that say where a row came from, while it is away."""


def even_ends(total: int, count: int) -> list[int]:
    """Where each of ``count`` shards ends, so that their sizes differ by one at most, the larger ones first."""
    size, more = divmod(total, count)
    return [size * (number + 1) + min(number + 1, more) for number in range(count)]


def repartitioned(shards: Collection, count: int) -> Collection:
    kept = shards.keep()
    sizes = kept.map(_count).collect()
    starts = [0, *itertools.accumulate(sizes)]
    ends = even_ends(sum(sizes), count)
    return kept.exchange(_Cut(tuple(starts), tuple(ends)), count, _join)


def to_frames(_number: int, parts: list[Any]) -> Any:
    """Gather pandas frames in the order of the shards that they come from."""
    return pieces.joined_frames(parts)


@dataclass(frozen=True, slots=True)
class ByHash:
    """Rows with the same values in some columns go to the same shard."""

    columns: tuple[Any, ...]
    kinds: pd.DataFrame
    """The columns, without rows, in the types by which they are compared."""
    count: int

    def __call__(self, _index: int, frame: pd.DataFrame) -> list[pd.DataFrame]:
        buckets = hashes(frame[list(self.columns)], self.kinds) % np.uint64(self.count)
        return divided(frame, buckets.astype(np.int64), self.count)


@dataclass(frozen=True, slots=True)
class ByRange:
    """Rows go to the shard of their range; those that compare as equal go to the same."""

    by: tuple[Any, ...]
    ascending: tuple[bool, ...]
    bounds: pd.DataFrame
    count: int

    def __call__(self, _index: int, frame: pd.DataFrame) -> list[pd.DataFrame]:
        return divided(frame, self.numbers(frame[list(self.by)]), self.count)

    def numbers(self, keys: pd.DataFrame) -> NDArray[np.int64]:
        """The number of each row's range: how many bounds come before it, or are equal to it."""
        if self._plain:
            return np.searchsorted(self.bounds.iloc[:, 0].to_numpy(), keys.iloc[:, 0].to_numpy(), side="right")
        kinds = self.bounds.dtypes.to_dict()
        both = pd.concat([self.bounds, keys.set_axis(self.bounds.columns, axis=1).astype(kinds)], ignore_index=True)
        order = in_order(both, list(self.bounds.columns), self.ascending)
        is_bound = order < len(self.bounds)
        numbers = np.zeros(len(both), np.int64)
        numbers[order] = np.cumsum(is_bound)
        return numbers[len(self.bounds) :]

    @property
    def _plain(self) -> bool:
        """Whether this is one column of numbers that grow, which numpy finds sooner; NaN is the last for it too."""
        kinds = list(self.bounds.dtypes)
        return self.ascending == (True,) and isinstance(kinds[0], np.dtype) and kinds[0].kind in "iuf"


@dataclass(frozen=True, slots=True)
class Home:
    """Rows go back to the shard that they came from."""

    count: int

    def __call__(self, _index: int, frame: pd.DataFrame) -> list[pd.DataFrame]:
        return divided(frame, frame[SHARD].to_numpy(np.int64), self.count)


def at_home(_number: int, parts: list[Any]) -> Any:
    """Gather rows that have come back, in the order that they had."""
    frame = pieces.joined_frames(parts)
    frame = frame.sort_values(ROW, kind="stable", ignore_index=True)
    return frame.drop(columns=[SHARD, ROW])


def placed(index: int, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with columns that say where its rows are."""
    frame = frame.copy(deep=False)
    frame[SHARD] = np.full(len(frame), index)
    frame[ROW] = np.arange(len(frame))
    return frame


def divided(frame: pd.DataFrame, buckets: NDArray[np.int64], count: int) -> list[pd.DataFrame]:
    """The rows of each bucket, in the order that they have."""
    order = np.argsort(buckets, kind="stable")
    ends = np.cumsum(np.bincount(buckets, minlength=count))
    sorted_ = frame.take(order)
    return [sorted_.iloc[start:stop] for start, stop in zip([0, *ends[:-1]], ends, strict=True)]


def hashes(keys: pd.DataFrame, kinds: pd.DataFrame) -> NDArray[np.uint64]:
    """A number for each row; rows that pandas takes for equal have the same, also null and null, 0.0 and -0.0."""
    total: Any = np.zeros(len(keys), np.uint64)
    for name, kind in zip(keys.columns, kinds.dtypes, strict=True):
        column = keys[name].astype(kind)
        if isinstance(kind, pd.CategoricalDtype):
            column = column.astype(kind.categories.dtype)
        if column.dtype.kind == "f":
            column = column + 0.0
        each = pd.util.hash_pandas_object(column, index=False).to_numpy(np.uint64, copy=True)
        each[column.isna().to_numpy()] = 0
        total = total * np.uint64(1_000_003) + each
    mixed: NDArray[np.uint64] = total ^ (total >> np.uint64(32))
    return mixed


def ranges(
    tables: Sequence[tuple[Survey, Sequence[Any]]], kinds: pd.DataFrame, ascending: Sequence[bool], count: int
) -> pd.DataFrame:
    """Keys that divide tables into ``count`` ranges of about the same size, found by some rows of each shard."""
    found: list[pd.DataFrame] = [kinds]
    weights: list[NDArray[np.float64]] = []
    for survey, by in tables:
        for some, size in zip(survey.some, filter(None, survey.rows), strict=True):
            found.append(some[list(by)].set_axis(kinds.columns, axis=1).astype(kinds.dtypes.to_dict()))
            weights.append(np.full(len(some), size / len(some)))
    keys: pd.DataFrame = pieces.joined_frames(found)
    if not weights:
        return keys
    order = in_order(keys, list(keys.columns), ascending)
    passed = np.cumsum(np.concatenate(weights)[order])
    at = np.searchsorted(passed, passed[-1] * np.arange(1, count) / count, side="right")
    return keys.take(order[np.minimum(at, len(order) - 1)]).drop_duplicates(ignore_index=True)


def in_order(keys: pd.DataFrame, by: list[Any], ascending: Sequence[bool]) -> NDArray[np.int64]:
    """Row numbers in the order of pandas' ``sort_values``: nulls last, equal rows in the order that they have."""
    counted = keys.reset_index(drop=True)
    ordered = counted.sort_values(by, ascending=list(ascending), kind="stable", na_position="last")
    return ordered.index.to_numpy(np.int64)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The rows of each new shard that one old shard has."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def __call__(self, index: int, shard: Any) -> list[Any]:
        first, size = self.starts[index], self.starts[index + 1] - self.starts[index]
        at = [min(max(end - first, 0), size) for end in (0, *self.ends)]
        return [pieces.cut(shard, start, stop) for start, stop in itertools.pairwise(at)]


def _join(_number: int, parts: list[Any]) -> Any:
    return pieces.join(parts)


def _count(_index: int, shard: Any) -> int:
    return pieces.count(shard)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Sorts what has come to one shard."""

    by: tuple[Any, ...]
    ascending: tuple[bool, ...]

    def __call__(self, _index: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.take(in_order(frame[list(self.by)], list(self.by), self.ascending)).reset_index(drop=True)
