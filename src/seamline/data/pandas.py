"""Pandas frames, read by column name."""

from __future__ import annotations

from typing import Any

import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from seamline.core import tree
from seamline.core.shards import Columns
from seamline.data.arrays import ArrayShards
from seamline.data.columns import pick_columns


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
        for name in tree.leaves([list(columns.features), list(columns.labels or ())]):
            if name in data and not (is_numeric_dtype(data[name]) or is_bool_dtype(data[name])):
                raise ValueError(f"column {name!r} holds {data[name].dtype}, not numbers; encode it first")
        super().__init__(pick_columns(data, columns))

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (pd.DataFrame, pd.Series))
