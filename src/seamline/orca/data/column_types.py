"""Types of columns, agreed by the parts of a table that were read apart."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from pandas.api import types

from seamline.core.errors import SeamlineError

Kind: TypeAlias = Literal["nothing", "nulls", "bool", "number", "time", "duration", "text", "category", "other"]
Join: TypeAlias = "Callable[[Hashable, Column, Column], Column]"


class MixedSchemasError(SeamlineError, ValueError):
    """Two files disagree about a column, so that no type is right for both; the message names all three."""


@dataclass(frozen=True, slots=True)
class Column:
    """What a part of a table has in a column; ``nothing`` is a part of no rows."""

    dtype: Any
    kind: Kind

    @classmethod
    def of(cls, values: pd.Series[Any]) -> Column:
        return cls(values.dtype, _kind(values))


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of one part of a file."""

    file: str
    columns: Mapping[Hashable, Column]

    @classmethod
    def of(cls, file: str, frame: pd.DataFrame) -> Table:
        return cls(file, {name: Column.of(frame[name]) for name in frame.columns})


def agree(tables: Iterable[Table], *, missing: Literal["error", "nulls"], mixed: Column) -> dict[Hashable, Column]:
    """The columns of all parts together, in the order in which they appear first.

    Parts of one file agree as if pandas had read the whole file: whole numbers and fractions are fractions, and what
    has nothing in common is ``mixed``. Files that have nothing in common are an error that names both. A column that
    a file lacks is an error too, or nulls.
    """
    files: dict[str, dict[Hashable, Column]] = {}
    for table in tables:
        known = files.get(table.file)
        files[table.file] = dict(table.columns) if known is None else _together(known, table.columns, _or(mixed))
    agreed: dict[Hashable, Column] = {}
    first_with: dict[Hashable, tuple[str, Column]] = {}
    for number, (file, columns) in enumerate(files.items()):
        if number and missing == "error":
            _same_names(next(iter(files)), agreed, file, columns)
        agreed = _together(agreed, columns, _or_error(first_with, file)) if number else columns
        for name, column in columns.items():
            if column.kind not in ("nothing", "nulls"):
                first_with.setdefault(name, (file, column))
    return agreed


def conform(frame: pd.DataFrame, agreed: Mapping[Hashable, Column]) -> pd.DataFrame:
    """The frame with the agreed columns in the agreed order; the frame itself if it has them already."""
    fits = {name: name in frame and frame[name].dtype == column.dtype for name, column in agreed.items()}
    if all(fits.values()) and list(frame.columns) == list(agreed):
        return frame
    values = {name: frame[name] if fits[name] else _cast(frame, name, agreed[name].dtype) for name in agreed}
    return pd.DataFrame(values, index=frame.index)


def _kind(values: pd.Series[Any]) -> Kind:
    dtype = values.dtype
    if len(values) == 0:
        return "nothing"
    if values.iloc[:1].isna().all() and values.isna().all():
        return "nulls"
    tests: tuple[tuple[Callable[[Any], bool], Kind], ...] = (
        (lambda dtype: isinstance(dtype, pd.CategoricalDtype), "category"),
        (types.is_bool_dtype, "bool"),
        (types.is_numeric_dtype, "number"),
        (types.is_datetime64_any_dtype, "time"),
        (types.is_timedelta64_dtype, "duration"),
    )
    for test, kind in tests:
        if test(dtype):
            return kind
    inferred = types.infer_dtype(values, skipna=True)
    return {"string": "text", "boolean": "bool"}.get(inferred, "other")  # type: ignore[return-value]


def _together(known: Mapping[Hashable, Column], found: Mapping[Hashable, Column], join: Join) -> dict[Hashable, Column]:
    absent = Column(np.dtype(float), "nulls")
    names = [*known, *(name for name in found if name not in known)]
    return {name: join(name, known.get(name, absent), found.get(name, absent)) for name in names}


def _or(mixed: Column) -> Join:
    return lambda name, one, other: _common(one, other) or mixed


def _or_error(first_with: Mapping[Hashable, tuple[str, Column]], file: str) -> Join:
    def join(name: Hashable, one: Column, other: Column) -> Column:
        common = _common(one, other)
        if common is None:
            before, theirs = first_with[name]
            raise MixedSchemasError(
                f"column {name!r} is {theirs.dtype} in {before} and {other.dtype} in {file}; "
                f"say what it is: dtype={{{name!r}: ...}}"
            )
        return common

    return join


def _common(one: Column, other: Column) -> Column | None:
    """What both can be without losing anything; ``None`` if that is nothing."""
    if "nothing" in (one.kind, other.kind):
        return other if one.kind == "nothing" else one
    if "nulls" in (one.kind, other.kind):
        return _with_nulls(other if one.kind == "nulls" else one)
    if one == other:
        return one
    if one.kind != other.kind:
        return None
    if one.kind == "category":
        return _all_categories(one.dtype, other.dtype)
    # Of two empty columns pandas makes the type that holds the values of both.
    dtype = pd.concat([pd.Series([], dtype=one.dtype), pd.Series([], dtype=other.dtype)]).dtype
    lost = dtype.kind == "O" and one.kind in ("number", "time", "duration")
    return None if lost else Column(dtype, one.kind)


def _with_nulls(column: Column) -> Column:
    """What pandas makes of a column when there are nulls besides."""
    if isinstance(column.dtype, np.dtype):
        if column.dtype.kind in "iu":
            return Column(np.dtype(float), column.kind)
        if column.dtype.kind == "b":
            return Column(np.dtype(object), column.kind)
    return column


def _all_categories(one: pd.CategoricalDtype, other: pd.CategoricalDtype) -> Column | None:
    if one.ordered or other.ordered or one.categories.dtype != other.categories.dtype:
        return None
    return Column(pd.CategoricalDtype(one.categories.union(other.categories, sort=True)), "category")


def _cast(frame: pd.DataFrame, name: Hashable, dtype: Any) -> pd.Series[Any]:
    """The column as another type; nulls stay nulls, also as text."""
    values: pd.Series[Any]
    if name not in frame or frame[name].isna().all():
        missing: Any = np.nan if dtype is np.dtype(object) else None
        values = pd.Series([missing] * len(frame), index=frame.index, dtype=dtype)
    else:
        values = frame[name].astype(dtype)
    return values


def _same_names(first: str, agreed: Mapping[Hashable, Column], file: str, columns: Mapping[Hashable, Column]) -> None:
    for name in [*agreed, *columns]:
        if (name in agreed) != (name in columns):
            has, lacks = (first, file) if name in agreed else (file, first)
            raise MixedSchemasError(
                f"column {name!r} of {has} is missing in {lacks}; read files of different columns apart, "
                "or choose those that all of them have with usecols=[...]"
            )
