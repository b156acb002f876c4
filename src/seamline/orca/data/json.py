"""JSON files, and lines of JSON."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from seamline.orca.data import bad_rows
from seamline.orca.data.bad_rows import BadRow, BadRowError, OnError
from seamline.orca.data.column_types import Column
from seamline.orca.data.files import File, Paths, StorageOptions, find_files
from seamline.orca.data.frames import Part, read_frames
from seamline.orca.data.pieces import Lines, Piece
from seamline.orca.data.sharing import number_of_shards
from seamline.orca.xshards import XShards

LINES = (".jsonl", ".ndjson")
SUFFIXES = (".json", *LINES)


def read_json(
    path: Paths,
    *,
    lines: bool | None = None,
    num_shards: int | None = None,
    on_error: OnError = "raise",
    storage_options: StorageOptions = None,
    **options: Any,
) -> XShards:
    """JSON files as shards of pandas frames; ``options`` are those of ``pandas.read_json``.

    ``lines=True``, the default for files that end in ``.jsonl`` or ``.ndjson``, means an object on each line: large
    files are then cut, and a bad line is an error with its number, or left out and counted with ``on_error="drop"``.
    A key that some rows or files lack is null there. Types are agreed by all files, so everything is read once, now.
    """
    bad_rows.check(on_error)
    if options.get("chunksize") or options.get("nrows"):
        raise ValueError("chunksize= and nrows= are of no use here; num_shards= says how many parts there are")
    try:
        inspect.signature(pd.read_json).bind("path", lines=bool(lines), **options)
    except TypeError as error:
        raise TypeError(f"pandas.read_json {error}") from None
    files = find_files(path, SUFFIXES, storage_options)
    if lines is None:
        lines = all(file.suffix in LINES for file in files)
    reader = JsonReader(options, lines)
    return read_frames(files, reader, number_of_shards(num_shards, sum(file.size for file in files)), on_error)


@dataclass(frozen=True, slots=True)
class JsonReader:
    """Pieces of JSON files by pandas' own parser."""

    options: Mapping[str, Any]
    lines: bool
    mixed: Column = Column(np.dtype(object), "other")
    missing: Literal["error", "nulls"] = "nulls"

    def cutting(self, file: File) -> Lines | None:
        whole = not self.lines or file.compressed or self.options.get("compression", "infer") not in ("infer", None)
        return None if whole else Lines()

    def read(self, piece: Piece) -> Part:
        data = piece.read(self.options.get("compression", "infer"))
        if not data.strip():
            return Part(piece)
        try:
            return Part(piece, self._parse(data))
        except ValueError as error:
            good, bad = self._sorted_out(data, piece) if self.lines else ([], [])
            if not bad:
                raise BadRowError(f"{piece.file.name} is not JSON that pandas reads: {error}") from error
            return Part(piece, self._parse(b"\n".join(good)) if good else None, tuple(bad))

    def reread(self, part: Part, agreed: Mapping[Hashable, Column]) -> pd.DataFrame:
        assert part.frame is not None
        return part.frame

    def _parse(self, data: bytes) -> pd.DataFrame:
        options = {name: value for name, value in self.options.items() if name != "compression"}
        frame: pd.DataFrame = pd.read_json(io.BytesIO(data), lines=self.lines, **options)
        return frame

    def _sorted_out(self, data: bytes, piece: Piece) -> tuple[list[bytes], list[BadRow]]:
        good, bad = [], []
        first = 1 + piece.lines_before()
        for number, line in enumerate(data.split(b"\n"), first):
            try:
                if line.strip():
                    json.loads(line)
                    good.append(line)
            except ValueError as error:
                bad.append(BadRow(piece.file.name, number, str(error)))
        return good, bad
