"""Rows that cannot be read: which they are, by file and line, and the data without them.

Good data never comes here: a piece is looked at row by row only after pandas has refused it.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pandas as pd

from seamline.core.errors import SeamlineError

OnError: TypeAlias = Literal["raise", "drop"]
Parse: TypeAlias = Callable[[bytes], pd.DataFrame]

_SHOWN = 5
_MOST_BY_TRIAL = 1000
"""Bad rows that are looked for by halving, where nothing better tells which they are."""


class BadRowError(SeamlineError, ValueError):
    """A row of a file cannot be read; the message has the file and the line."""


class DroppedRowsWarning(UserWarning):
    """Rows that could not be read were left out, as ``on_error="drop"`` asks; the message counts them."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be read, and why; after a ``fatal`` one nobody can tell where the next row starts."""

    file: str
    line: int
    reason: str
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it stands in the file; ``line`` is that of its first line."""

    line: int
    data: bytes
    fields: Sequence[str]


def check(on_error: str) -> None:
    if on_error not in ("raise", "drop"):
        raise ValueError(f'on_error is "raise" or "drop", but got {on_error!r}')


def report(bad: Sequence[BadRow], on_error: OnError) -> None:
    """One error, or one warning that counts what was dropped; both name the first rows."""
    fatal = [row for row in bad if row.fatal]
    if fatal:
        raise BadRowError(f"{fatal[0]}, so that no row after it can be read")
    if not bad:
        return
    shown = "; ".join(map(str, bad[:_SHOWN])) + ("; ..." if len(bad) > _SHOWN else "")
    if on_error == "raise":
        count = "a row" if len(bad) == 1 else f"{len(bad)} rows"
        raise BadRowError(f'{count} cannot be read: {shown}; on_error="drop" reads the others')
    warnings.warn(f"{len(bad)} bad row{'s' * (len(bad) > 1)} dropped: {shown}", DroppedRowsWarning, stacklevel=4)


def split_rows(data: bytes, first_line: int, dialect: Mapping[str, Any]) -> list[Row]:
    """The rows of delimited text, blank lines left out."""
    lines = data.decode("latin-1").split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    found, start = [], 0
    before = csv.field_size_limit(max(len(data), 1 << 17))
    try:
        reader = csv.reader(lines, **dialect)
        for fields in reader:
            text = "".join(lines[start : reader.line_num])
            if fields:
                found.append(Row(first_line + start, text.encode("latin-1"), fields))
            start = reader.line_num
    finally:
        csv.field_size_limit(before)
    return found


def too_long(rows: Sequence[Row], fields: int, file: str) -> list[BadRow]:
    """Rows of more fields than there are columns."""
    return [
        BadRow(file, row.line, f"{len(row.fields)} fields where there are {fields} columns")
        for row in rows
        if len(row.fields) > fields
    ]


def undecodable(rows: Sequence[Row], encoding: str, file: str) -> list[BadRow]:
    """Rows that are not text in the encoding."""
    found = []
    for row in rows:
        try:
            row.data.decode(encoding)
        except UnicodeDecodeError as error:
            found.append(BadRow(file, row.line, f"byte 0x{row.data[error.start]:02x} is not {encoding}"))
    return found


def unwanted_values(rows: Sequence[Row], dtype: Any, text: pd.DataFrame, file: str) -> list[BadRow]:
    """Rows with a value that is not of the column's type, for numbers; ``text`` has the columns as they stand."""
    found: dict[int, BadRow] = {}
    wanted: Mapping[Any, Any] = dtype if isinstance(dtype, Mapping) else dict.fromkeys(text.columns, dtype)
    for name, kind in wanted.items():
        if name not in text or not pd.api.types.is_numeric_dtype(pd.api.types.pandas_dtype(kind)):
            continue
        values: pd.Series[Any] = text[name]
        numbers = pd.to_numeric(values, errors="coerce")
        bad = numbers.isna() & values.notna()
        if pd.api.types.is_integer_dtype(kind):
            bad |= numbers.notna() & (numbers % 1 != 0)
            if not pd.api.types.is_extension_array_dtype(kind):
                bad |= values.isna()
        for index in bad.to_numpy().nonzero()[0].tolist():
            value = values.iloc[index]
            shown = "no value" if pd.isna(value) else repr(value)
            found.setdefault(index, BadRow(file, rows[index].line, f"column {name!r} has {shown}, not {kind}"))
    return [found[index] for index in sorted(found)]


def by_trial(rows: Sequence[Row], head: bytes, parse: Parse, file: str) -> list[BadRow]:
    """Rows that the parser refuses, whatever its reason, found by halving what it refuses."""
    found: list[BadRow] = []

    def search(part: Sequence[Row]) -> None:
        try:
            parse(head + b"".join(row.data for row in part))
        except (ValueError, TypeError, OverflowError) as error:
            if len(part) > 1:
                search(part[: len(part) // 2])
                search(part[len(part) // 2 :])
                return
            found.append(BadRow(file, part[0].line, str(error).removeprefix("Error tokenizing data. C error: ")))
            if len(found) > _MOST_BY_TRIAL:
                raise BadRowError(
                    f"{file} has more than {_MOST_BY_TRIAL} rows that cannot be read, the first on line "
                    f"{found[0].line}: {found[0].reason}"
                ) from error

    search(rows)
    return found
