"""What is written aside for one run: files of record batches that go when the run is over, however it ends."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pyarrow as pa

from seamline.core import folder
from seamline.core.errors import DataError
from seamline.core.folder import SharedFolder
from seamline.core.shards import Columns, Reading
from seamline.data.arrow.chunks import BLOCK_ROWS, IpcChunk
from seamline.data.arrow.layout import unfilled
from seamline.data.arrow.shards import Gathered
from seamline.data.arrow.writing import write

PREFIX = "seamline-rows-"
_AWAY = "seamline-away-"
"""Begins the names of folders on machines where nobody holds them; they are removed when they are old."""
_FORGET_AFTER_S = 3 * 24 * 3600
_PIECES = 32
"""A record batch is at most this part of a worker's buffer."""


class Stage:
    """A folder for the rows of one data set, held by this process and swept up by the next if it is killed.

    Tasks on other machines write to the folders that their cluster keeps for the application and removes with it. With
    ``cache_dir`` everything goes to a folder that all share.
    """

    def __init__(self, names: Sequence[str], columns: Columns, reading: Reading) -> None:
        above = Path(reading.cache_dir or gettempdir()).absolute()
        self._folder = SharedFolder(above / folder.new_name(PREFIX), lambda _: None, prefix=PREFIX)
        self._away: set[Path] = set()
        self._na = columns.na
        self.bytes = max(2**12, reading.memory_bytes // _PIECES)
        self.rows = BLOCK_ROWS
        self.target: dict[str, Any] = {
            "folder": str(self._folder.path),
            "name": self._folder.path.name,
            "shared": reading.cache_dir is not None,
            "names": list(names),
            "drop": columns.na == "drop",
            "rows": self.rows,
            "bytes": self.bytes,
            "away": _AWAY,
            "forget_after_s": _FORGET_AFTER_S,
        }

    def write(self, batches: Iterator[pa.RecordBatch]) -> Gathered:
        """Write rows that this process reads."""
        written = write(self.target, "part-00000", batches)
        return self.gathered([] if written is None else [written])

    def gathered(self, written: Iterable[dict[str, Any]]) -> Gathered:
        """What tasks have written, in the order of their parts."""
        parts = sorted(written, key=lambda each: str(each["part"]))
        if not parts:
            raise DataError("the data has no rows")
        self._away = {Path(each["path"]).parent for each in parts} - {self._folder.path}
        for each in parts:
            for name, count in each["nulls"].items():
                unfilled(name, count, self._na)
        mark = zlib.crc32(repr([each["mark"] for each in parts]).encode())
        chunks = [IpcChunk(each["path"], tuple(each["rows"]), each["host"]) for each in parts]
        with pa.ipc.open_stream(parts[0]["example"]) as stream:
            return Gathered(chunks, stream.read_next_batch(), mark)

    @property
    def elsewhere(self) -> list[str]:
        """Folders that this machine does not see, to be removed where they are."""
        return [str(path) for path in self._away if not path.exists()]

    def close(self) -> None:
        for path in self._away:
            shutil.rmtree(path, ignore_errors=True)
        self._folder.close()
