"""CSV files."""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import warnings
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import IO, Any, Literal

import pandas as pd
from pandas.tseries.api import guess_datetime_format

from seamline.core import machine
from seamline.core.errors import ColumnError
from seamline.orca.data import bad_rows
from seamline.orca.data.bad_rows import BadRow, BadRowError, OnError, Row
from seamline.orca.data.column_types import Column
from seamline.orca.data.delimited import Delimited, dialect_of, head_of
from seamline.orca.data.files import File, Paths, StorageOptions, find_files
from seamline.orca.data.frames import Part, read_frames
from seamline.orca.data.pieces import Piece
from seamline.orca.data.sharing import number_of_shards
from seamline.orca.xshards import XShards

SUFFIXES = (".csv", ".tsv", ".txt")
_THREADS = "max_threads"
"""pandas' option in ``mode``, from 3.1 on."""
_UNCLOSED = "EOF inside string"


def read_csv(
    path: Paths,
    *,
    num_shards: int | None = None,
    on_error: OnError = "raise",
    storage_options: StorageOptions = None,
    **options: Any,
) -> XShards:
    """CSV files as shards of pandas frames, with the rows, names and types that ``pandas.read_csv`` gives.

    ``path`` is a file, a list, a glob, a folder or a URL, and ``options`` are pandas'. There are as many shards as
    workers, or ``num_shards``; large files are cut between rows. A row that cannot be read is an error with its file
    and line, or is left out and counted with ``on_error="drop"``. Types are agreed by all files, so everything is read
    once, now, and kept where it lies.
    """
    _check(options, on_error)
    files = find_files(path, SUFFIXES, storage_options)
    if options.get("nrows") is not None and len(files) > 1:
        raise ValueError(f"nrows={options['nrows']} means rows of one file, but there are {len(files)}")
    filled = next((file for file in files if file.size), files[0])
    reader = CsvReader(_with_dates(filled, options), Column(_text_type(options.get("dtype_backend")), "text"))
    reader.check_names(filled)
    return read_frames(files, reader, number_of_shards(num_shards, sum(file.size for file in files)), on_error)


@dataclass(frozen=True, slots=True)
class CsvReader:
    """Pieces of CSV files by pandas' own parser."""

    options: Mapping[str, Any]
    mixed: Column
    missing: Literal["error", "nulls"] = "error"

    def cutting(self, file: File) -> Delimited | None:
        return Delimited.of(file, self.options)

    def read(self, piece: Piece) -> Part:
        try:
            with piece.open() as stream, _as_many_threads_as_others():
                whole = piece.file.path if piece.whole else None  # pandas reads large files with several threads
                frame = self._parse(whole or stream, compression=_compression(self.options, piece.file))
                return Part(piece, frame)
        except pd.errors.EmptyDataError:
            return Part(piece)
        except pd.errors.DtypeWarning:  # pandas guesses types block by block, which is faster if they agree
            return replace(self, options={**self.options, "low_memory": False}).read(piece)
        except (ValueError, TypeError, OverflowError) as error:
            if _UNCLOSED in str(error) and not piece.last:
                return Part(piece, cut_within_a_row=True)
            return self._without_bad_rows(piece, error)

    def reread(self, part: Part, agreed: Mapping[Hashable, Column]) -> pd.DataFrame:
        """Numbers of a column that is text after all are read as they stand in the file: ``007`` stays ``007``."""
        assert part.frame is not None
        plain = ("text", "nulls", "nothing")
        names = [
            name
            for name, column in agreed.items()
            if column.kind == "text" and name in part.frame and Column.of(part.frame[name]).kind not in plain
        ]
        if not names:
            return part.frame
        again = replace(self, options=_as_text(self.options, names)).read(part.piece)
        assert again.frame is not None
        return again.frame

    def check_names(self, file: File) -> None:
        """Raise an error for a column that is asked for and not there, before anything starts."""
        wanted: list[Hashable] = []
        for option in ("usecols", "parse_dates", "index_col"):
            names = self.options.get(option)
            wanted += [names] if isinstance(names, str) else list(names) if isinstance(names, (list, tuple)) else []
        plain = {
            name: value
            for name, value in self.options.items()
            if name not in ("usecols", "parse_dates", "index_col", "dtype", "converters", "date_format")
        }
        if not any(isinstance(name, str) for name in wanted) or not file.size:
            return
        with file.open() as stream:
            plain |= {"nrows": 0, "compression": _compression(self.options, file)}
            there = list(pd.read_csv(stream, **plain).columns)
        for name in wanted:
            if isinstance(name, str) and name not in there:
                raise ColumnError.missing(name, there)

    def _parse(self, source: str | IO[bytes], **more: Any) -> pd.DataFrame:
        """By pandas; ``DtypeWarning`` if it would give a column of texts and numbers side by side."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.DtypeWarning)
            frame: pd.DataFrame = pd.read_csv(source, **{**self.options, **more})
        return frame

    def _parse_bytes(self, data: bytes) -> pd.DataFrame:
        by_c = self.options.get("engine") in (None, "c") and not self.options.get("skipfooter")
        return self._parse(io.BytesIO(data), compression=None, **({"low_memory": False} if by_c else {}))

    def _without_bad_rows(self, piece: Piece, error: Exception) -> Part:
        """Look at every row to find those at fault, and read the others."""
        file, dialect = piece.file.name, dialect_of(self.options)
        data = piece.read(self.options.get("compression", "infer"))
        head = head_of(data, self.options) if piece.first else piece.head
        if head is None or len(dialect["delimiter"] or "") != 1 or not self._head_is_good(head):
            raise BadRowError(f"{file} cannot be read: {error}") from error
        own_head = head if piece.first else b""
        line = 1 + piece.lines_before() + own_head.count(b"\n")
        rows = self._rows(data[len(own_head) :] if piece.first else data[len(piece.head) :], line, dialect)
        bad = bad_rows.undecodable(rows, self.options.get("encoding") or "utf-8", file)
        if self.options.get("usecols") is None and rows:
            bad += bad_rows.too_long(_others(rows, bad), self._fields(head, rows[0], dialect), file)
        for find in (self._unclosed, self._values, self._refused):
            good = _others(rows, bad)
            try:
                frame = self._parse_bytes(head + b"".join(row.data for row in good))
            except (ValueError, TypeError, OverflowError) as again:
                bad += find(good, head, file, again)
            else:
                break
        else:
            frame = self._parse_bytes(head + b"".join(row.data for row in _others(rows, bad)))
        if not bad:
            raise BadRowError(f"{file} cannot be read: {error}") from error
        return Part(piece, frame, tuple(sorted(bad, key=lambda row: row.line)))

    def _head_is_good(self, head: bytes) -> bool:
        if not head:
            return True
        try:
            self._parse(io.BytesIO(head), compression=None, nrows=0)
        except (ValueError, TypeError):
            return False
        return True

    def _rows(self, data: bytes, line: int, dialect: Mapping[str, Any]) -> list[Row]:
        comment = (self.options.get("comment") or "").encode()
        rows = bad_rows.split_rows(data, line, dialect)
        return [row for row in rows if not comment or not row.data.startswith(comment)]

    def _fields(self, head: bytes, first: Row, dialect: Mapping[str, Any]) -> int:
        """How many a row may have: as many as the header, or the first row if that has more."""
        names = self.options.get("names")
        header = bad_rows.split_rows(head, 1, dialect)
        return max(len(first.fields), len(header[-1].fields) if header else len(names or ()))

    def _unclosed(self, rows: Sequence[Row], head: bytes, file: str, error: Exception) -> list[BadRow]:
        if _UNCLOSED not in str(error):
            return []
        return [BadRow(file, rows[-1].line, "a quote is opened and never closed", fatal=True)]

    def _values(self, rows: Sequence[Row], head: bytes, file: str, error: Exception) -> list[BadRow]:
        dtype = self.options.get("dtype")
        if dtype is None:
            return []
        text = replace(self, options={**_as_text(self.options, ()), "dtype": str, "converters": None})
        frame = text._parse_bytes(head + b"".join(row.data for row in rows))
        return bad_rows.unwanted_values(rows, dtype, frame, file) if len(frame) == len(rows) else []

    def _refused(self, rows: Sequence[Row], head: bytes, file: str, error: Exception) -> list[BadRow]:
        return bad_rows.by_trial(rows, head, self._parse_bytes, file)


def _as_many_threads_as_others() -> AbstractContextManager[object]:
    """Let pandas keep to the number of threads that numerical libraries are told, if they are and it can."""
    told = machine.environment().get("OMP_NUM_THREADS", "")
    if not told.isdigit() or _THREADS not in dir(pd.options.mode) or pd.get_option(f"mode.{_THREADS}") is not None:
        return contextlib.nullcontext()
    return pd.option_context(f"mode.{_THREADS}", int(told))


def _others(rows: Sequence[Row], bad: Sequence[BadRow]) -> list[Row]:
    lines = {row.line for row in bad}
    return [row for row in rows if row.line not in lines]


def _check(options: Mapping[str, Any], on_error: str) -> None:
    bad_rows.check(on_error)
    for name in ("chunksize", "iterator"):
        if options.get(name):
            raise ValueError(f"{name}= is of no use here; num_shards= says how many parts there are")
    try:
        inspect.signature(pd.read_csv).bind("path", **options)
    except TypeError as error:
        raise TypeError(f"pandas.read_csv {error}") from None


def _compression(options: Mapping[str, Any], file: File) -> Any:
    given = options.get("compression", "infer")
    return file.compressed if given == "infer" else given


@functools.cache
def _text_type(backend: Any) -> Any:
    """The type that pandas gives to texts, by default or with a ``dtype_backend``."""
    options = {} if backend is None else {"dtype_backend": backend}
    return pd.read_csv(io.StringIO("a\ntext\n"), **options)["a"].dtype


def _as_text(options: Mapping[str, Any], names: Sequence[Hashable]) -> dict[str, Any]:
    """The options under which these columns are read as they stand in the file."""
    dtype = options.get("dtype")
    dates = options.get("parse_dates")
    return {
        **options,
        "dtype": {**(dtype if isinstance(dtype, Mapping) else {}), **dict.fromkeys(names, str)},
        "parse_dates": [name for name in dates if name not in names] if isinstance(dates, (list, tuple)) else dates,
    }


def _with_dates(file: File, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The format of dates, as pandas would guess it from the first one; else every part would guess for itself."""
    dates = options.get("parse_dates")
    if not isinstance(dates, (list, tuple)) or options.get("date_format") or not file.size:
        return options
    names = [name for name in dates if isinstance(name, str)]
    plain = {**_as_text(options, names), "nrows": 1000, "compression": _compression(options, file)}
    try:
        with file.open() as stream:
            sample = pd.read_csv(stream, **plain)
    except ValueError:
        return options  # whatever it is, it is explained when the file is read
    formats = {}
    for name in names:
        values = list(sample[name].dropna().head(1)) if name in sample else []
        guess = guess_datetime_format(values[0], options.get("dayfirst", False)) if values else None
        if guess:
            formats[name] = guess
    return {**options, "date_format": formats} if formats else options
