"""Folders on a disk that are whole or absent: written aside, made durable, then renamed into place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Disk:
    """Keeps a folder at a path of this machine, or of a disk that several machines share."""

    path: Path

    @contextmanager
    def aside(self) -> Iterator[Path]:
        folder = self.path.with_name(f".writing-{self.path.name}-{os.getpid()}")
        try:
            folder.mkdir(parents=True)
            yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def part_for(self, last: str) -> str:
        return ""

    def put(self, folder: Path, part: str, last: str) -> None:
        for file in folder.iterdir():
            _flush(file)
        _flush(folder)
        replaced = self.path.with_name(f".replaced-{self.path.name}-{os.getpid()}")
        if self.path.exists():
            self.path.rename(replaced)
        try:
            folder.rename(self.path)
        except OSError:
            if replaced.exists():
                replaced.rename(self.path)
            raise
        _flush(self.path.parent)
        shutil.rmtree(replaced, ignore_errors=True)

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        yield self.path

    def sizes(self) -> dict[str, int]:
        files = self.path.iterdir() if self.path.is_dir() else ()
        return {file.name: file.stat().st_size for file in files if file.is_file()}

    def is_free(self, last: str) -> bool:
        if not self.path.exists():
            return True
        return self.path.is_dir() and ((self.path / last).exists() or not any(self.path.iterdir()))

    def remove(self, first: str) -> None:
        shutil.rmtree(self.path)

    def tidy(self, pattern: str, last: str) -> None:
        """A replacement that a killed writer had begun is finished."""
        above = pattern.rpartition("/")[0]
        for half in self.path.glob(f"{above}/.writing-*"):
            shutil.rmtree(half, ignore_errors=True)
        for old in self.path.glob(f"{above}/.replaced-*"):
            place = old.parent / old.name.removeprefix(".replaced-").rpartition("-")[0]
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(place)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
