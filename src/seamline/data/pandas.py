"""Pandas frames, read by column name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from seamline.core import tree
from seamline.core.errors import DataError
from seamline.core.shards import Columns
from seamline.data.arrays import ArrayShards
from seamline.data.columns import pick_columns, require, wanted


class FrameShards(ArrayShards):
    """The named columns of a frame as arrays."""

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        if isinstance(data, pd.Series):
            super().__init__(data.to_numpy())
            return
        if columns.features is None:
            raise ValueError(
                "a DataFrame needs feature_cols=[...], and label_cols=[...] to learn; "
                f"it has {', '.join(map(repr, data.columns))}"
            )
        data = _complete(data, columns)
        for name in tree.leaves([list(columns.features), list(columns.labels or ()), columns.weight]):
            if name in data and not (is_numeric_dtype(data[name]) or is_bool_dtype(data[name])):
                raise ValueError(f"column {name!r} holds {data[name].dtype}, not numbers; encode it first")
        super().__init__(pick_columns(data, columns))

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (pd.DataFrame, pd.Series))


def _complete(frame: Any, columns: Columns) -> Any:
    """The frame without missing values, where the user said what becomes of them, and with numbers for categories."""
    for name in columns.categories:
        require(name, frame.columns)
    if isinstance(columns.na, str):
        if columns.na != "drop":
            raise ValueError(f"na={columns.na!r} means nothing; say 'drop', a number, or a dict of numbers by column")
        frame = frame.dropna(subset=[name for name in wanted(columns) if name in frame])
    elif columns.na is not None:
        frame = frame.fillna(columns.na)
    coded = {name: _codes(name, frame[name], values) for name, values in columns.categories.items()}
    return frame.assign(**coded) if coded else frame


def _codes(name: str, column: Any, values: Sequence[Any]) -> Any:
    codes = pd.Index(list(values)).get_indexer(column).astype("int64")
    if (codes < 0).any():
        other = column[codes < 0].iloc[0]
        raise DataError(f"column {name!r} holds {other!r}, which is not among its categories")
    return codes
