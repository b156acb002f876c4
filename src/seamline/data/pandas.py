"""Pandas frames, read by column name."""

from __future__ import annotations

from typing import Any

import pandas as pd

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
        picked = pick_columns(data, columns)
        for column in tree.leaves(picked):
            if column.dtype == object:
                raise ValueError(f"column {column.name!r} holds {column.dtype}s, not numbers; encode it first")
        super().__init__(picked)

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (pd.DataFrame, pd.Series))
