"""Rows by number in files that are mapped into memory: features, and what else a batch holds."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seamline.frameworks.torch.frozen.bits import raw
from seamline.frameworks.torch.frozen.folder import SharedFolder
from seamline.frameworks.torch.frozen.stand_in import Numbers

LARGEST_BYTES = 8 * 2**30
"""More is used only if the user says so."""

_LAYOUT, _FILLED, _DROPPED = "layout.json", "filled", "dropped"


class NoRoomError(Exception):
    """The rows do not fit, or the place for them cannot be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Column:
    """One value of each row."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, batch: torch.Tensor) -> Column:
        return cls(tuple(batch.shape[1:]), batch.dtype)

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Room:
    """How many rows there are to keep, where, and in how many bytes at most."""

    rows: int
    folder: Path | None = None
    limit_bytes: int | None = None


class RowCache:
    """Columns of rows that are filled in any order, by any process on this machine, and read in any order.

    The room for all rows is taken at the start: a full disk is an answer then, and a crash later.
    """

    def __init__(self, room: Room, columns: Sequence[Column]) -> None:
        self.rows = room.rows
        self.columns = list(columns)
        self.size = room.rows * (1 + sum(column.row_bytes for column in columns))
        try:
            self._folder = SharedFolder(room.folder, lambda path: self._prepare(path, room.limit_bytes))
        except OSError as error:
            raise NoRoomError(f"no room for {self.size / 1e6:,.0f} MB of features: {error.strerror}") from error
        if json.loads((self._folder.path / _LAYOUT).read_text()) != self._layout():
            self._folder.close()
            raise NoRoomError(f"{self._folder.path} is in use for other features")
        self._maps = [self._map(f"column-{n}", column.row_bytes) for n, column in enumerate(columns)]
        self._filled = self._map(_FILLED, 1)

    @property
    def path(self) -> Path:
        return self._folder.path

    def write(self, column: int, numbers: Numbers, values: torch.Tensor) -> None:
        self._maps[column][numbers] = raw(values).numpy()

    def read(self, column: int, numbers: Numbers) -> torch.Tensor:
        kind = self.columns[column]
        # Not torch's own indexing: a copy that numpy makes may be written to, a map that is shared may not.
        rows = torch.from_numpy(self._maps[column][numbers])
        return rows.view(kind.dtype).reshape(len(numbers), *kind.shape)

    def fill(self, numbers: Numbers) -> None:
        """Declare rows complete, after everything of them was written."""
        self._filled[numbers] = 1

    def missing(self, numbers: Numbers) -> Numbers:
        missing: Numbers = numbers[self._filled[numbers, 0] == 0]
        return missing

    @property
    def dropped(self) -> bool:
        """Whether one of the processes has found that the rows are wrong."""
        return (self._folder.path / _DROPPED).exists()

    def drop(self) -> None:
        (self._folder.path / _DROPPED).touch()

    def close(self) -> None:
        self._maps.clear()
        self._folder.close()

    def _prepare(self, path: Path, limit_bytes: int | None) -> None:
        free = shutil.disk_usage(path).free
        limit = min(free // 2, LARGEST_BYTES) if limit_bytes is None else limit_bytes
        if self.size > limit:
            raise NoRoomError(f"{self.size / 1e6:,.0f} MB of features are more than the limit of {limit / 1e6:,.0f} MB")
        for number, column in enumerate(self.columns):
            _reserve(path / f"column-{number}", self.rows * column.row_bytes)
        _reserve(path / _FILLED, self.rows)
        (path / _LAYOUT).write_text(json.dumps(self._layout()))

    def _layout(self) -> list[Any]:
        return [self.rows, [[list(column.shape), str(column.dtype)] for column in self.columns]]

    def _map(self, name: str, row_bytes: int) -> Any:
        if row_bytes == 0:
            return np.zeros((self.rows, 0), np.uint8)
        return np.memmap(self._folder.path / name, np.uint8, "r+", shape=(self.rows, row_bytes))


def _reserve(path: Path, size: int) -> None:
    """A file with all its blocks: writing to a map of a file with holes kills the process when the disk is full."""
    with path.open("xb") as file:
        if size:
            os.posix_fallocate(file.fileno(), 0, size)
