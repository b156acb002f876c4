"""Folders behind a URL, on any store that fsspec knows; most have neither folders nor a rename."""

from __future__ import annotations

import fnmatch
import posixpath
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.core import url_to_fs  # type: ignore[import-untyped]
from fsspec.implementations.memory import MemoryFileSystem  # type: ignore[import-untyped]

from seamline.core.errors import UnavailableError, UnpicklableError
from seamline.core.folder import SharedFolder, new_path

_COPIES, _PART = "seamline-copy-", "part-"
BEGUN = ".begun"
"""Tells a folder that somebody began to write from one that is none of our business."""
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}


def file_system(path: str, options: Mapping[str, Any]) -> tuple[AbstractFileSystem, str]:
    """fsspec's file system for a path, and the path within it; a relative path becomes an absolute one."""
    scheme = path.partition("://")[0]
    try:
        fs, inside = url_to_fs(path, **options)
    except ImportError as error:
        package = _PACKAGES.get(scheme)
        advice = f"pip install {package}" if package else str(error)
        raise UnavailableError(f"{scheme}:// needs a package that is not installed; {advice}") from error
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    return fs, inside


@dataclass(frozen=True, slots=True, order=True)
class Remote:
    """A folder or file below ``root``, with those verbs of ``Path`` that a store without folders can have."""

    root: str
    inside: str = ""

    def __str__(self) -> str:
        return posixpath.join(self.root, self.inside) if self.inside else self.root

    def __truediv__(self, name: str) -> Remote:
        return Remote(self.root, posixpath.join(self.inside, name))

    def __reduce__(self) -> Any:
        if isinstance(self._store()[0], MemoryFileSystem):
            raise UnpicklableError(
                f"{self.root} is memory of this process, which no other process sees; "
                "train with one worker and no context, or give a place that all of them see"
            )
        return Remote, (self.root, self.inside)

    @property
    def name(self) -> str:
        return posixpath.basename(str(self).rstrip("/"))

    @property
    def parent(self) -> Remote:
        return Remote(self.root, posixpath.dirname(self.inside))

    def exists(self) -> bool:
        fs, path = self._store()
        return bool(fs.exists(path))

    def is_file(self) -> bool:
        fs, path = self._store()
        return bool(fs.isfile(path))

    def iterdir(self) -> Iterator[Remote]:
        return (self / posixpath.basename(entry["name"].rstrip("/")) for entry in self._entries())

    def glob(self, pattern: str) -> Iterator[Remote]:
        """What lies in it and has such a name."""
        return (each for each in self.iterdir() if fnmatch.fnmatchcase(each.name, pattern))

    def read_text(self) -> str:
        fs, path = self._store()
        data: bytes = fs.cat_file(path)
        return data.decode()

    def sizes(self) -> dict[str, int]:
        """The files in it, with the bytes that each has."""
        files = (entry for entry in self._entries() if entry["type"] == "file")
        return {posixpath.basename(entry["name"]): int(entry["size"]) for entry in files}

    # What it can do with a folder that is to be whole or absent: the keeper's part.

    @contextmanager
    def aside(self) -> Iterator[Path]:
        """Among the temporary files; the next run removes it if this one is killed."""
        shared = SharedFolder(new_path(_COPIES), lambda path: None, prefix=_COPIES)
        try:
            folder = shared.path / "files"
            folder.mkdir()
            yield folder
        finally:
            shared.close()

    @contextmanager
    def on_disk(self) -> Iterator[Path]:
        fs, path = self._store()
        with self.aside() as folder:
            for name in self.sizes():
                fs.get_file(posixpath.join(path, name), str(folder / name))
            yield folder

    def part_for(self, last: str) -> str:
        """A part in which nobody writes; none is needed where nothing complete stands yet."""
        return _PART + secrets.token_hex(4) if (self / last).exists() else ""

    def put(self, folder: Path, part: str, last: str) -> None:
        """The files come first and ``last`` comes last: what stood here counts until then, and goes after that."""
        fs, path = self._store()
        names = [file.name for file in sorted(folder.iterdir()) if file.name != last]
        new = {posixpath.join(part, name): folder / name for name in names}
        old = [name for name in self._files() if (name in names or name.startswith(_PART)) and name not in new]
        fs.makedirs(posixpath.join(path, part), exist_ok=True)
        fs.pipe_file(posixpath.join(path, BEGUN), b"")
        try:
            for name, file in new.items():
                fs.put_file(str(file), posixpath.join(path, name))
            fs.pipe_file(posixpath.join(path, last), (folder / last).read_bytes())
        except Exception:
            with suppress(OSError):  # then the store is out of reach, and whoever comes next tidies up
                self._remove([*new, BEGUN])
            raise
        self._remove([*old, BEGUN])

    def is_free(self, last: str) -> bool:
        names = {each.name for each in self.iterdir()}
        return not self.is_file() and (not names or last in names or BEGUN in names)

    def remove(self, first: str) -> None:
        files = self._files()
        self._remove(sorted(files, key=lambda name: name != first))

    def tidy(self, pattern: str, last: str) -> None:
        folders: dict[str, list[str]] = {}
        depth = pattern.count("/") + 1
        for name in self._files():
            parts = name.split("/")
            folders.setdefault("/".join(parts[:depth]), []).append("/".join(parts[depth:]))
        for inside in fnmatch.filter(folders, pattern):
            names = folders[inside]
            (self / inside)._remove(names if last not in names else [name for name in names if name == BEGUN])

    def _store(self) -> tuple[AbstractFileSystem, str]:
        fs, path = file_system(self.root, {})
        fs.invalidate_cache()  # others write there too
        return fs, posixpath.join(path, self.inside) if self.inside else path

    def _entries(self) -> list[dict[str, Any]]:
        fs, path = self._store()
        try:
            entries: list[dict[str, Any]] = fs.ls(path, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [entry for entry in entries if entry["name"].rstrip("/") != path.rstrip("/")]

    def _files(self) -> list[str]:
        """All files below, by their paths from here."""
        fs, path = self._store()
        return [posixpath.relpath(found, path) for found in fs.find(path)]

    def _remove(self, names: list[str]) -> None:
        """Files, and the folders that are empty after that on a store that has such."""
        fs, path = self._store()
        for name in names:
            with suppress(FileNotFoundError):
                fs.rm_file(posixpath.join(path, name))
        folders = {posixpath.dirname(posixpath.join(path, name)) for name in names} | {path}
        for folder in sorted(folders, key=len, reverse=True):
            if fs.isdir(folder) and not fs.find(folder):
                fs.rm(folder, recursive=True)
