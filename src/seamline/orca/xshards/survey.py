"""What is known of all shards of a table before its rows are moved: types that all agree on, and numbers of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from seamline.core.collection import Collection
from seamline.core.errors import ColumnError
from seamline.orca.xshards.frames import Maker, Names, as_frame, named

_SOME = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """What one shard says: its columns without rows, those that hold nothing but nulls, its rows, and some of them."""

    kinds: pd.DataFrame
    hollow: frozenset[Any]
    rows: int
    some: pd.DataFrame
    maker: Maker


@dataclass(frozen=True, slots=True)
class Survey:
    """The table as a whole; ``kinds`` is it without rows, ``some`` are rows of each shard."""

    kinds: pd.DataFrame
    rows: tuple[int, ...]
    some: tuple[pd.DataFrame, ...]
    maker: Maker

    @property
    def columns(self) -> list[Any]:
        return list(self.kinds.columns)


def surveyed(shards: Collection, sample: Names | None = ()) -> tuple[Collection, Survey]:
    """The shards as pandas frames of the same types, computed once; and what is known of them.

    ``sample`` are the columns of which some rows are wanted; ``None`` are all.
    """
    kept = shards.keep()
    survey = agreed(kept.map(_Look(None if sample is None else tuple(named(sample)))).collect())
    return kept.map(Conform(survey.kinds)), survey


def agreed(findings: Sequence[Finding]) -> Survey:
    """One type for each column. Shards without rows, and columns without a value, have no say unless all are so."""
    full = [finding for finding in findings if finding.rows] or list(findings[:1])
    first = full[0].kinds
    for number, finding in enumerate(findings):
        if finding.rows and list(finding.kinds.columns) != list(first.columns):
            raise ColumnError(
                f"shard {number} has the columns {_told(finding.kinds)}, but others have {_told(first)}; "
                "give all shards the same columns in the same order"
            )
    kinds = {name: _one_type([_Column(f.kinds[name], name in f.hollow) for f in full]) for name in first.columns}
    frame = pd.DataFrame(kinds, columns=first.columns)
    some = tuple(Conform(frame[list(each.some.columns)])(0, each.some) for each in findings if each.rows)
    return Survey(frame, tuple(finding.rows for finding in findings), some, full[0].maker)


@dataclass(frozen=True, slots=True)
class Conform:
    """Brings a shard to the agreed types."""

    kinds: pd.DataFrame

    def __call__(self, _index: int, shard: Any) -> pd.DataFrame:
        frame = as_frame(shard)
        if not len(frame):
            return self.kinds
        other = [name for name, kind in self.kinds.dtypes.items() if frame[name].dtype != kind]
        if not other:
            return frame
        frame = frame.copy(deep=False)
        for name in other:
            frame[name] = self._conformed(frame[name])
        return frame

    def _conformed(self, column: Any) -> Any:
        kind = self.kinds[column.name]
        if _hollow(column):  # a cast of nulls alone may fail, or make texts of them
            return kind.reindex(range(len(column))).set_axis(column.index)
        return column.astype(kind.dtype)


@dataclass(frozen=True, slots=True)
class _Column:
    empty: Any
    hollow: bool


@dataclass(frozen=True, slots=True)
class _Look:
    sample: tuple[Any, ...] | None

    def __call__(self, index: int, shard: Any) -> Finding:
        frame = as_frame(shard)
        hollow = frozenset(name for name in frame.columns if _hollow(frame[name]))
        kinds = frame.iloc[:0].reset_index(drop=True)
        return Finding(kinds, hollow, len(frame), self._some(index, frame), Maker.like(shard))

    def _some(self, index: int, frame: pd.DataFrame) -> pd.DataFrame:
        """As many rows as it takes to find ranges of about the same size; who misses a column is told later."""
        wanted = frame if self.sample is None else frame[[name for name in self.sample if name in frame.columns]]
        if len(frame) > _SOME:
            wanted = wanted.take(np.sort(np.random.default_rng(index).choice(len(frame), _SOME, replace=False)))
        return wanted.reset_index(drop=True)


def _hollow(column: Any) -> bool:
    """Whether there are rows, and nulls in all of them; mostly the first one tells."""
    return bool(column.iloc[:1].isna().any()) and bool(column.isna().all())


def _one_type(columns: list[_Column]) -> Any:
    telling = [column.empty for column in columns if not column.hollow] or [columns[0].empty]
    if len(telling) < len(columns) and any(map(_without_nulls, telling)):
        telling = [*telling, pd.Series([], dtype=float)]
    if all(isinstance(kind.dtype, pd.CategoricalDtype) for kind in telling):
        return pd.Series(union_categoricals([kind.array for kind in telling]))
    if len({str(kind.dtype) for kind in telling}) == 1:
        return telling[0]
    return pd.concat(telling, ignore_index=True)


def _without_nulls(column: Any) -> bool:
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "iub"


def _told(frame: pd.DataFrame) -> str:
    return ", ".join(map(repr, frame.columns))
