"""Values as numbers: the place of each in the sorted list of all that occur, or a column for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from seamline.core.errors import ColumnError
from seamline.orca.xshards import frames
from seamline.orca.xshards.transformers.transformer import Transformer


class _Categories(Transformer):
    """Learns the different values of each column, sorted."""

    unknown: str

    def _look(self, frame: pd.DataFrame) -> list[Any]:
        return [frame[name].dropna().unique() for name in frame.columns]

    def _learn(self, said: Sequence[Any]) -> None:
        names = frames.named(self.columns)
        self.categories_ = {name: _sorted([each[number] for each in said], name) for number, name in enumerate(names)}

    def _codes(self, column: Any, name: str) -> Any:
        """The place of each value; -1 for one that was not seen, or a null."""
        codes = pd.Index(self.categories_[name]).get_indexer(pd.Index(column.astype(object)))
        if self.unknown == "error" and (codes < 0).any():
            value = column[codes < 0].iloc[0]
            what = "a null" if pd.isna(value) else repr(value)
            raise ColumnError(
                f"column {name!r} holds {what}, which fit has not seen; drop or replace it, or say what becomes of it "
                "by handle_unknown="
            )
        return codes


class StringIndexer(_Categories):
    """Each value becomes its place in the sorted list of all; with ``handle_unknown="keep"`` others become -1."""

    def __init__(
        self,
        columns: frames.Names,
        *,
        handle_unknown: Literal["error", "keep"] = "error",
        outputs: frames.Names | None = None,
    ) -> None:
        super().__init__(columns, outputs)
        self.handle_unknown = handle_unknown

    @property
    def unknown(self) -> str:  # type: ignore[override]
        return self.handle_unknown

    def _column(self, column: Any, name: str) -> Any:
        return pd.Series(self._codes(column, name).astype(np.int64), column.index)


class OneHot(_Categories):
    """Each column becomes one for each value, named like ``colour_red``; with ``"ignore"`` others are 0 in all."""

    def __init__(self, columns: frames.Names, *, handle_unknown: Literal["error", "ignore"] = "error") -> None:
        super().__init__(columns)
        self.handle_unknown = handle_unknown

    @property
    def unknown(self) -> str:  # type: ignore[override]
        return self.handle_unknown

    def _transformed(self, shard: Any) -> Any:
        frame = frames.as_frame(shard)
        names = self._there(shard)
        parts = [frame.drop(columns=names), *(self._column(frame[name], name) for name in names)]
        return frames.Maker.like(shard)(pd.concat(parts, axis=1))

    def _column(self, column: Any, name: str) -> Any:
        known = self.categories_[name]
        hot = self._codes(column, name)[:, None] == np.arange(len(known))
        return pd.DataFrame(hot.astype(np.float64), column.index, [f"{name}_{value}" for value in known])


def _sorted(values: list[Any], name: str) -> list[Any]:
    found = pd.unique(pd.Series([each for part in values for each in part], dtype=object)).tolist()
    try:
        return sorted(found)
    except TypeError as error:
        kinds = sorted({type(value).__name__ for value in found})
        raise ColumnError(
            f"column {name!r} mixes {' and '.join(kinds)}, which have no order; make it one type"
        ) from error
