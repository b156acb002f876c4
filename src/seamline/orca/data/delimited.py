"""Delimited text: what of a CSV file is its header, and where it can be cut although fields may hold line ends."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from seamline.orca.data.files import File

_WHOLE_FILES_ONLY = ("nrows", "skipfooter", "escapechar", "lineterminator", "dialect", "iterator", "chunksize")
"""Options under which a part of a file does not mean what it means within the whole."""
_HEAD = 1 << 16
_LARGEST_WINDOW = 1 << 24


@dataclass(frozen=True, slots=True)
class Delimited:
    """How to cut one CSV file: its header, and how many fields a row has."""

    head: bytes
    fields: int
    dialect: Mapping[str, Any]

    @classmethod
    def of(cls, file: File, options: Mapping[str, Any]) -> Delimited | None:
        """``None`` if the file has to be read as a whole, because of its options, its coding or its header."""
        if not can_be_cut(options) or file.compressed or options.get("compression", "infer") not in ("infer", None):
            return None
        start = file.read(0, _HEAD)
        head = head_of(start, options)
        if head is None:
            return None
        dialect = dialect_of(options)
        try:
            fields = len(next(csv.reader(_lines(start[len(head) :]), **dialect)))
        except (StopIteration, csv.Error):
            return None
        return cls(head, fields, dialect)

    def row_start(self, file: File, position: int) -> int:
        """Where a row starts soon after ``position``; a guess where fields hold line ends, for the parser to confirm.

        Whether the position is within quotes cannot be seen from nearby. Both are tried, and that is believed which
        gives rows of as many fields as there should be.
        """
        position = max(position, len(self.head))
        size = _HEAD
        while size <= _LARGEST_WINDOW:
            window = file.read(position, size)
            states = (False,) if self.dialect["quoting"] == csv.QUOTE_NONE else (False, True)
            found = [guess for opened in states if (guess := self._guess(window, opened))]
            if found:
                return position + max(found, key=lambda guess: guess[0])[1]
            if len(window) < size:
                break
            size *= 4
        return file.size

    def _guess(self, window: bytes, opened: bool) -> tuple[float, int] | None:
        """How many of the rows have the right number of fields, and where the first of them starts."""
        lines = list(_lines(window))[:-1]  # the last is cut off, or ends the file
        if not lines:
            return None
        quote = self.dialect["quotechar"] if opened else ""
        rows = csv.reader([quote + lines[0], *lines[1:]], **self.dialect)
        try:
            next(rows)
            start = rows.line_num
            counts = [len(row) for row in rows if row]
        except (csv.Error, StopIteration):
            return None
        if start == len(lines) and opened:
            return None
        fitting = sum(count == self.fields for count in counts) / len(counts) if counts else 0.0
        return fitting, sum(len(line) for line in lines[:start])


def can_be_cut(options: Mapping[str, Any]) -> bool:
    """Whether a row of such a file means the same wherever it stands, and the parser tells a row that is cut in two."""
    return (
        not any(options.get(name) for name in _WHOLE_FILES_ONLY)
        and options.get("engine") in (None, "c")
        and not callable(options.get("on_bad_lines"))
        and not isinstance(options.get("header", "infer"), (list, tuple))
        and (options.get("skiprows") is None or isinstance(options["skiprows"], int))
        and len(_separator(options) or "") == 1
        and options.get("encoding_errors", "strict") == "strict"
        and _ends_lines_as_ascii(options.get("encoding") or "utf-8")
    )


def _ends_lines_as_ascii(encoding: str) -> bool:
    return codecs.lookup(encoding).name.startswith(("utf-8", "ascii", "iso8859", "cp125"))


def _separator(options: Mapping[str, Any]) -> str | None:
    given: str | None = options.get("sep", options.get("delimiter", ","))
    return given


def dialect_of(options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "delimiter": _separator(options),
        "quotechar": options.get("quotechar", '"'),
        "quoting": options.get("quoting", csv.QUOTE_MINIMAL),
        "doublequote": options.get("doublequote", True),
        "skipinitialspace": options.get("skipinitialspace", False),
    }


def head_of(start: bytes, options: Mapping[str, Any]) -> bytes | None:
    """The bytes up to the end of the header, which pandas has to see before any row; ``None`` if that is not clear."""
    names = options.get("names")
    header = options.get("header", "infer")
    if header is None or (header == "infer" and names is not None):
        return None if options.get("skiprows") else b""
    end = 0
    while (found := start.find(b"\n", end)) >= 0:
        end = found + 1
        try:
            pd.read_csv(io.BytesIO(start[:end]), **{**options, "nrows": 0})
        except (pd.errors.EmptyDataError, pd.errors.ParserError):
            continue  # lines that are skipped, or a line end within the header
        return start[:end]
    return None


def _lines(data: bytes) -> list[str]:
    """Text of one character for each byte, split at line feeds alone."""
    return list(io.StringIO(data.decode("latin-1"), newline="\n"))
