"""What a table is like: extremes, nulls, statistics and different values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from seamline.core.collection import Collection
from seamline.core.errors import ColumnError
from seamline.orca.xshards import frames, pieces
from seamline.orca.xshards.survey import Survey


def unique(shards: Collection) -> Any:
    return pieces.joined_frames(shards.map(_unique).collect()).unique()


def nulls(shards: Collection) -> pd.DataFrame:
    counts = shards.map(frames.OnFrames(_nulls)).collect()
    total = sum(counts[1:], start=counts[0])
    return pd.DataFrame({"col": total.index, "total": total.to_numpy(np.int64)})


def extreme(shards: Collection, which: str, columns: frames.Names | None) -> Any:
    """The largest or smallest value of each column, of those of all shards."""
    found = pieces.joined_frames(shards.map(_Extreme(which, columns)).collect())
    values = getattr(found, which)()
    return values.iloc[0] if isinstance(columns, str) else values


def described(shards: Collection, survey: Survey, columns: list[str]) -> pd.DataFrame:
    """Each column comes together in one place, where pandas describes it."""
    kinds = survey.kinds[frames.need(survey.columns, columns)] if columns else survey.kinds
    numbers = kinds.select_dtypes(include=[np.number, "datetime"])
    names = list(kinds.columns if columns or not len(numbers.columns) else numbers.columns)
    if not names:
        raise ColumnError("there are no columns to describe")
    said = shards.exchange(_Columns(tuple(names)), len(names), _describe).collect()
    order = {label: None for each in sorted(said, key=len) for label in each.index}
    table: pd.DataFrame = pd.concat([each.reindex(list(order)) for each in said], axis=1)
    return table


@dataclass(frozen=True, slots=True)
class _Extreme:
    which: str
    columns: frames.Names | None

    def __call__(self, _index: int, shard: Any) -> pd.DataFrame:
        frame = frames.as_frame(shard)
        if self.columns is not None:
            frame = frame[frames.need(frame.columns, self.columns)]
        else:
            frame = frame[[name for name, kind in frame.dtypes.items() if _comparable(kind)]]
        if not len(frame):
            return frame
        return pd.DataFrame({name: frame[name].agg([self.which]) for name in frame.columns}).reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Gives each column to a shard of its own."""

    names: tuple[Any, ...]

    def __call__(self, _index: int, frame: pd.DataFrame) -> list[Any]:
        return [frame[name] for name in self.names]


def _describe(_number: int, parts: list[Any]) -> Any:
    return pieces.joined_frames(parts).describe()


def _unique(_index: int, shard: Any) -> Any:
    if isinstance(shard, pd.Series):
        return shard.drop_duplicates()
    raise ColumnError(f"unique is for one column, but a shard is a {type(shard).__name__}; write shards['a'].unique()")


def _nulls(frame: pd.DataFrame) -> Any:
    return frame.isna().sum()


def _comparable(kind: Any) -> bool:
    return not isinstance(kind, pd.CategoricalDtype) or bool(kind.ordered)
