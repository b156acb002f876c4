"""Where models are kept: a folder of this machine or of a shared disk, or one behind a URL.

A folder that is kept there is whole or absent; how that is done is the business of ``Disk`` and ``Remote``.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from seamline.core.disk import Disk

if TYPE_CHECKING:
    from seamline.core.remote import Remote

Place: TypeAlias = "Path | Remote"


class Keeper(Protocol):
    """What a place can do with a folder; one of its files makes the others count."""

    def aside(self) -> AbstractContextManager[Path]:
        """An empty folder of this machine to fill, which goes with those who fill it."""
        ...

    def part_for(self, last: str) -> str:
        """Where in the place the files of the next ``put`` will be: in itself (``""``) or in a part of this name."""
        ...

    def put(self, folder: Path, part: str, last: str) -> None:
        """Take over the files of ``aside``: from when ``last`` is there all of them count, and nothing older."""
        ...

    def on_disk(self) -> AbstractContextManager[Path]:
        """The files as a folder of this machine, for as long as somebody reads."""
        ...

    def sizes(self) -> dict[str, int]:
        """The files, with the bytes that each has; none if the place is not there."""
        ...

    def is_free(self, last: str) -> bool:
        """Whether nothing is there but what was put there."""
        ...

    def remove(self, first: str) -> None:
        """All that is there; where that takes a while, the file ``first`` goes first."""
        ...

    def tidy(self, pattern: str, last: str) -> None:
        """Remove what killed writers left of the folders below that have such paths."""
        ...


def at(path: str | os.PathLike[str] | Place) -> Place:
    """The place that a user means by a path or a URL."""
    if not isinstance(path, (str, os.PathLike)):
        return path
    text = os.fspath(path)
    if "://" not in text:
        return Path(text).absolute()
    from fsspec.implementations.local import LocalFileSystem  # type: ignore[import-untyped]

    from seamline.core.remote import Remote, file_system

    fs, inside = file_system(text, {})
    return Path(inside) if isinstance(fs, LocalFileSystem) else Remote(text.rstrip("/"))


def keeper(place: Place) -> Keeper:
    return Disk(place) if isinstance(place, Path) else place
