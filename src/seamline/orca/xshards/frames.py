"""Shards that are tables: pandas frames, or what becomes one and back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from seamline.core.errors import ColumnError

Names = str | Sequence[str]


def as_frame(shard: Any) -> pd.DataFrame:
    """The shard as a pandas frame."""
    if isinstance(shard, pd.DataFrame):
        return shard
    if isinstance(shard, pd.Series):
        return shard.to_frame()
    if hasattr(shard, "to_pandas") and hasattr(shard, "columns"):
        frame: pd.DataFrame = shard.to_pandas()
        return frame
    raise ColumnError(f"a shard of type {type(shard).__name__} has no columns; make it a DataFrame by transform_shard")


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes of a pandas frame a table of the library that the shards were of."""

    library: str | None = None

    @classmethod
    def like(cls, shard: Any) -> Maker:
        return cls(None if isinstance(shard, (pd.DataFrame, pd.Series)) else type(shard).__module__.partition(".")[0])

    def __call__(self, frame: pd.DataFrame) -> Any:
        if self.library is None:
            return frame
        library = sys.modules[self.library]
        return getattr(library, "Table", library).from_pandas(frame)


@dataclass(frozen=True, slots=True)
class OnFrames:
    """A function of a pandas frame, for tables of any library."""

    func: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def __call__(self, _index: int, shard: Any) -> Any:
        result = self.func(as_frame(shard), *self.args)
        return Maker.like(shard)(result) if isinstance(result, pd.DataFrame) else result


def named(columns: Names) -> list[str]:
    """One name or several, as a list."""
    return [columns] if isinstance(columns, str) else list(columns)


def need(known: Iterable[Any], columns: Names) -> list[str]:
    """The names as a list, once each is known to be there."""
    there = list(known)
    for name in named(columns):
        if name not in there:
            raise ColumnError.missing(name, there)
    return named(columns)


def select(frame: pd.DataFrame, columns: Names) -> Any:
    need(frame.columns, columns)
    return frame[columns] if isinstance(columns, str) else frame[list(columns)]


def drop_missing(frame: pd.DataFrame, columns: Names | None) -> pd.DataFrame:
    return frame.dropna(subset=need(frame.columns, columns) if columns is not None else None)


def assemble(frame: pd.DataFrame, features: Names, labels: Names | None) -> dict[str, Any]:
    """Arrays of the chosen columns side by side; a single one stays a column by itself."""
    chosen = {"x": features} if labels is None else {"x": features, "y": labels}
    return {key: _side_by_side(frame, names) for key, names in chosen.items()}


def _side_by_side(frame: pd.DataFrame, names: Names) -> Any:
    import numpy as np

    arrays = [frame[name].to_numpy() for name in need(frame.columns, names)]
    arrays = [_rectangular(array, name) for array, name in zip(arrays, named(names), strict=True)]
    return arrays[0] if len(arrays) == 1 else np.concatenate([_column(array) for array in arrays], axis=1)


def _column(array: Any) -> Any:
    return array[:, None] if array.ndim == 1 else array


def _rectangular(array: Any, name: str) -> Any:
    """An array of numbers; lists in a column become a dimension if they are all as long."""
    import numpy as np

    if array.dtype != object or not len(array) or not hasattr(array[0], "__len__") or isinstance(array[0], str):
        return array
    lengths = {len(each) for each in array}
    if len(lengths) > 1:
        raise ColumnError(f"column {name!r} is ragged: its lists have {min(lengths)} to {max(lengths)} items; pad them")
    return np.stack([np.asarray(each) for each in array])
