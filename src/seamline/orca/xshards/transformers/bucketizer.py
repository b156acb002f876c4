"""Numbers as the number of the interval that they are in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from seamline.core.errors import ColumnError
from seamline.orca.xshards import frames
from seamline.orca.xshards.transformers.transformer import Transformer


class Bucketizer(Transformer):
    """Number i for values from ``splits[i]`` to below ``splits[i + 1]``; the last interval has both ends.

    There is nothing to learn, so ``transform`` can be called at once. Infinite splits take what is left.
    """

    def __init__(self, columns: frames.Names, splits: Sequence[float], outputs: frames.Names | None = None) -> None:
        super().__init__(columns, outputs)
        self.splits = splits

    def _look(self, frame: pd.DataFrame) -> None:
        return None

    def _learn(self, said: Sequence[Any]) -> None:
        """Nothing."""

    def _check_fitted(self) -> None:
        if len(self.splits) < 2 or any(a >= b for a, b in zip(self.splits, self.splits[1:], strict=False)):
            raise ValueError(f"splits must be at least two numbers that increase, but got {list(self.splits)}")

    def _column(self, column: Any, name: str) -> Any:
        values = column.to_numpy(np.float64, na_value=np.nan)
        low, high = self.splits[0], self.splits[-1]
        outside = ~((values >= low) & (values <= high))
        if outside.any():
            raise ColumnError(
                f"column {name!r} holds {values[outside][0]}, which is not from {low} to {high}; drop such rows, or "
                "let splits begin with -inf and end with inf"
            )
        numbers = np.searchsorted(np.asarray(self.splits, np.float64), values, side="right") - 1
        return pd.Series(np.minimum(numbers, len(self.splits) - 2), column.index, np.int64)
