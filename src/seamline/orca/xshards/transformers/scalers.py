"""Numbers on a common scale; nulls are left out of what is learned, and stay nulls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from seamline.orca.xshards import frames
from seamline.orca.xshards.transformers.transformer import Transformer

Numbers = NDArray[np.float64]


class MinMaxScaler(Transformer):
    """Each column on a scale from its smallest to its largest value; a constant one becomes the lower end."""

    def __init__(
        self,
        columns: frames.Names,
        feature_range: tuple[float, float] = (0.0, 1.0),
        outputs: frames.Names | None = None,
    ) -> None:
        super().__init__(columns, outputs)
        self.feature_range = feature_range

    def _look(self, frame: pd.DataFrame) -> tuple[Numbers, Numbers]:
        return frame.min().to_numpy(np.float64), frame.max().to_numpy(np.float64)

    def _learn(self, said: Sequence[Any]) -> None:
        low, high = self.feature_range
        if low >= high:
            raise ValueError(f"`low < high` must hold, but got feature_range=({low}, {high})")
        self.data_min_ = np.fmin.reduce([smallest for smallest, _ in said])
        self.data_max_ = np.fmax.reduce([largest for _, largest in said])
        extent = self.data_max_ - self.data_min_
        self.scale_ = (high - low) / np.where(extent == 0, 1.0, extent)
        self.min_ = low - self.data_min_ * self.scale_

    def _column(self, column: Any, name: str) -> Any:
        number = frames.named(self.columns).index(name)
        return _scaled(column, lambda values: values * self.scale_[number] + self.min_[number])


class StandardScaler(Transformer):
    """Each column less its mean, divided by its standard deviation over all rows."""

    def __init__(
        self,
        columns: frames.Names,
        *,
        with_mean: bool = True,
        with_std: bool = True,
        outputs: frames.Names | None = None,
    ) -> None:
        super().__init__(columns, outputs)
        self.with_mean = with_mean
        self.with_std = with_std

    def _look(self, frame: pd.DataFrame) -> tuple[Numbers, Numbers, Numbers]:
        """Count, mean and sum of squared deviations of each column."""
        values = frame.to_numpy(np.float64, na_value=np.nan)
        count = np.sum(~np.isnan(values), axis=0).astype(np.float64)
        mean = np.nansum(values, axis=0) / np.maximum(count, 1)
        return count, mean, np.nansum((values - mean) ** 2, axis=0)

    def _learn(self, said: Sequence[Any]) -> None:
        count, mean, squares = said[0]
        for more, their_mean, their_squares in said[1:]:
            total = np.maximum(count + more, 1)
            apart = their_mean - mean
            squares = squares + their_squares + apart**2 * count * more / total
            mean = mean + apart * more / total
            count = count + more
        self.n_samples_seen_ = count.astype(np.int64)
        self.mean_ = mean
        self.var_ = squares / np.maximum(count, 1)
        noise = np.finfo(np.float64).eps
        constant = self.var_ <= count * noise * self.var_ + (count * mean * noise) ** 2
        self.scale_ = np.where(constant, 1.0, np.sqrt(self.var_))

    def _column(self, column: Any, name: str) -> Any:
        number = frames.named(self.columns).index(name)
        mean = self.mean_[number] if self.with_mean else 0.0
        scale = self.scale_[number] if self.with_std else 1.0
        return _scaled(column, lambda values: (values - mean) / scale)


def _scaled(column: Any, function: Any) -> Any:
    """Computed in float64; float32 comes back as such."""
    result = function(column.to_numpy(np.float64, na_value=np.nan))
    return pd.Series(result, column.index).astype(np.float32 if column.dtype == np.float32 else np.float64)
