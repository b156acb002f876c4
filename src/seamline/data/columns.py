"""Inputs and targets by column name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from seamline.core.shards import Columns, Weighed

Names = Sequence["str | Sequence[str]"]


def pick_columns(table: Mapping[str, Any], columns: Columns) -> tuple[Any, Any]:
    """The named columns as ``(inputs, targets)``: a single one as it is, several as a tuple."""
    targets = _pick(table, columns.labels)
    if columns.weight is not None:
        targets = Weighed(targets, _column(table, columns.weight))
    return _pick(table, columns.features), targets


def wanted(columns: Columns) -> list[str]:
    """Every column that is named, once, in order."""
    names: dict[str, None] = {}
    for group in (columns.features, columns.labels):
        for name in _listed(group):
            names.update(dict.fromkeys([name] if isinstance(name, str) else name))
    if columns.weight is not None:
        names[columns.weight] = None
    return list(names)


def arranged(arrays: Iterator[Any], names: Names | None) -> Any:
    """One array for each name, in the structure that ``pick_columns`` gives."""
    if names is None:
        return None
    chosen = [next(arrays) for _ in names]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


def require(name: str, known: Iterable[Any]) -> None:
    """Raise, with a near name if there is one, unless ``name`` is among those known."""
    there = [str(key) for key in known]
    if name in there:
        return
    close = difflib.get_close_matches(name, there, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    raise ValueError(f"no column {name!r}; there are {', '.join(map(repr, there))}{hint}")


def _listed(names: Names | None) -> Names:
    if isinstance(names, str):
        raise TypeError(f"columns come as a list of names: [{names!r}] instead of {names!r}")
    return names or ()


def _pick(table: Mapping[str, Any], names: Names | None) -> Any:
    if names is None:
        return None
    chosen = [_column(table, name) if isinstance(name, str) else _side_by_side(table, name) for name in _listed(names)]
    return arranged(iter(chosen), names)


def _side_by_side(table: Mapping[str, Any], names: Sequence[str]) -> Any:
    return np.stack([np.asarray(_column(table, name)) for name in names], axis=1)


def _column(table: Mapping[str, Any], name: str) -> Any:
    if name not in table:
        require(name, table)
    return table[name]
