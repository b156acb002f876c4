"""Which files a path means, wherever they lie: a path, a list, a glob, a folder or a URL."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import IO, Any, TypeAlias

from fsspec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.compression import compr  # type: ignore[import-untyped]

from seamline.core.remote import file_system

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
StorageOptions: TypeAlias = "Mapping[str, Any] | None"

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zip": "zip", ".xz": "xz", ".zst": "zstd", ".tar": "tar"}
"""Endings after which the data's own ending stands, with pandas' names for them."""


@dataclass(frozen=True, slots=True)
class File:
    """One file, which any worker can open; credentials travel along and are never shown."""

    url: str
    size: int
    within: str = ""
    """Its path within the folder that was asked for."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)

    @property
    def name(self) -> str:
        """What people call it: a path of this machine without a scheme."""
        return self.url.removeprefix("file://")

    @property
    def path(self) -> str | None:
        """Where it is on this machine, if it is on one."""
        return self.name if self.url.startswith("file://") else None

    @property
    def suffix(self) -> str:
        """The ending that says what it holds."""
        return _data_suffix(self.url)

    @property
    def compressed(self) -> str | None:
        """How its name says that it is compressed, in pandas' words."""
        return COMPRESSIONS.get(PurePosixPath(self.url.lower()).suffix)

    def open(self, start: int = 0) -> IO[bytes]:
        """Its bytes, from ``start`` on."""
        fs, path = self.file_system()
        try:
            stream: IO[bytes] = fs.open(path, "rb")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self.name} is not there, or not for this worker to see") from error
        stream.seek(start)
        return stream

    def file_system(self) -> tuple[AbstractFileSystem, str]:
        """fsspec's file system, and the path within it."""
        return file_system(self.url, self.options)

    def read_all(self) -> bytes:
        with self.open() as stream:
            return stream.read()

    def text(self, compression: str | None) -> bytes:
        """What stands in it, decompressed; ``"infer"`` goes by its name."""
        how = self.compressed if compression == "infer" else compression
        if how is None:
            return self.read_all()
        with self.open() as stream:
            data: bytes = compr[how](stream, mode="r").read()
            return data

    def read(self, start: int, size: int) -> bytes:
        with self.open(start) as stream:
            return stream.read(size)


def find_files(paths: Paths, suffixes: Collection[str] = (), storage_options: StorageOptions = None) -> list[File]:
    """The files that ``paths`` mean: a list in its order, what a glob or a folder holds by name.

    Of a folder only files with one of ``suffixes`` are meant, with or without a compression's, and none whose path
    within it has a part that starts with ``_`` or ``.``, which is where Spark and others keep their notes.
    """
    if isinstance(paths, (str, os.PathLike)):
        return _meant(os.fspath(paths), tuple(suffixes), dict(storage_options or {}))
    if not isinstance(paths, Sequence) or not paths:
        raise ValueError(f"expected a path or a list of paths, but got {paths!r}")
    return [file for path in paths for file in find_files(path, suffixes, storage_options)]


def joined(folder: str | os.PathLike[str], name: str) -> str:
    """The path of something in a folder, which may be a URL."""
    return posixpath.join(os.fspath(folder), name)


def _meant(path: str, suffixes: tuple[str, ...], options: dict[str, Any]) -> list[File]:
    fs, inside = file_system(path, options)
    if fs.isfile(inside):
        return [File(fs.unstrip_protocol(inside), fs.size(inside) or 0, options=options)]
    root = inside.rstrip("/") + "/"
    if fs.isdir(inside):
        found = dict(fs.find(inside, detail=True))
        names = [name for name in sorted(found) if _visible(name.removeprefix(root))]
        chosen = [name for name in names if not suffixes or _data_suffix(name) in suffixes]
        if not chosen:
            there = f"; there are {', '.join(posixpath.basename(name) for name in names[:3])}" if names else ""
            raise FileNotFoundError(f"no {' or '.join(suffixes)} file in {path}{there}; a glob names files of any name")
    elif any(sign in inside for sign in "*?["):
        found = {name: entry for name, entry in fs.glob(inside, detail=True).items() if entry["type"] == "file"}
        hidden = posixpath.basename(inside).startswith(".")
        chosen = [name for name in sorted(found) if hidden or not posixpath.basename(name).startswith(".")]
        if not chosen:
            raise FileNotFoundError(f"no file matches {path}")
    else:
        raise FileNotFoundError(f"no file or folder {path}")
    return [
        File(fs.unstrip_protocol(name), found[name]["size"] or 0, name.removeprefix(root), options) for name in chosen
    ]


def _visible(name: str) -> bool:
    return not any(part.startswith(("_", ".")) for part in name.split("/"))


def _data_suffix(name: str) -> str:
    """The ending that says what a file holds: ``.csv`` of ``a.csv.gz``."""
    path = PurePosixPath(name.lower())
    return PurePosixPath(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
