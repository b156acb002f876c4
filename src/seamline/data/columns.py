"""Inputs and targets by column name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seamline.core.shards import Columns

Names = Sequence["str | Sequence[str]"]


def pick_columns(table: Mapping[str, Any], columns: Columns) -> tuple[Any, Any]:
    """The named columns as ``(inputs, targets)``: a single one as it is, several as a tuple."""
    return _pick(table, columns.features), _pick(table, columns.labels)


def _pick(table: Mapping[str, Any], names: Names | None) -> Any:
    if names is None:
        return None
    if isinstance(names, str):
        raise TypeError(f"columns come as a list of names: [{names!r}] instead of {names!r}")
    chosen = [_column(table, name) if isinstance(name, str) else _side_by_side(table, name) for name in names]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def _side_by_side(table: Mapping[str, Any], names: Sequence[str]) -> Any:
    return np.stack([np.asarray(_column(table, name)) for name in names], axis=1)


def _column(table: Mapping[str, Any], name: str) -> Any:
    if name in table:
        return table[name]
    known = [str(key) for key in table]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"no column {name!r}; there are {', '.join(map(repr, known))}{hint}")
