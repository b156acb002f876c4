"""Rows of anything that has rows: pandas and Polars frames, Arrow tables, arrays, nests of these, and lists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from seamline.core import rows, tree
from seamline.core.errors import RowsError


def count(value: Any) -> int:
    """The number of rows; ``RowsError`` for an object that has none."""
    number = rows.count(value)
    if number is None:
        raise RowsError(f"a {type(value).__name__} has no rows that could be divided; give arrays, tables or lists")
    return number


def cut(value: Any, start: int, stop: int) -> Any:
    """The rows from ``start`` to before ``stop``."""
    return _each(lambda part: part.iloc[start:stop] if hasattr(part, "iloc") else part[start:stop], value)


def pick(value: Any, numbers: Any) -> Any:
    """The rows with these numbers, in their order."""

    def picked(part: Any) -> Any:
        if hasattr(part, "iloc"):
            return part.iloc[numbers]
        if isinstance(part, list):
            return [part[number] for number in numbers]
        return part.take(numbers) if isinstance(part, pa.Table) else part[numbers]

    return _each(picked, value)


def join(values: Sequence[Any]) -> Any:
    """The rows of all, one after the other; the index of pandas objects counts anew."""
    first = values[0]
    if rows.is_nest(first):
        return tree.zip_leaves(_joined, [value for value in values if rows.is_nest(value)])
    return _joined([*values])


def _joined(parts: list[Any]) -> Any:
    first = parts[0]
    if isinstance(first, (pd.DataFrame, pd.Series)):
        return joined_frames(parts)
    if isinstance(first, np.ndarray):
        full = [part for part in parts if len(part)] or parts[:1]
        return np.concatenate(full)
    if isinstance(first, list):
        return [row for part in parts for row in part]
    if isinstance(first, pa.Table):
        return pa.concat_tables(parts)
    return sys.modules[type(first).__module__.partition(".")[0]].concat(parts)


def joined_frames(parts: Sequence[Any]) -> Any:
    """Pandas objects in one; those without rows have no say in its types."""
    full = [part for part in parts if len(part)] or [*parts[:1]]
    if len(full) == 1:
        return full[0].reset_index(drop=True)
    return pd.concat(full, ignore_index=True)


def _each(function: Callable[[Any], Any], value: Any) -> Any:
    return tree.map_leaves(function, value) if rows.is_nest(value) else function(value)
