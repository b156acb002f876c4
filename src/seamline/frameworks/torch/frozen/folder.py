"""Where features are kept: a shared folder with a name of its own kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seamline.core import folder

PREFIX = "seamline-frozen-"


class SharedFolder(folder.SharedFolder):
    """A folder at ``path``, or a new one among the temporary files."""

    def __init__(self, path: Path | None, prepare: Callable[[Path], None]) -> None:
        super().__init__(path or new_path(), prepare, prefix=PREFIX)


def new_path() -> Path:
    return folder.new_path(PREFIX)


def sweep(parent: Path) -> None:
    folder.sweep(parent, PREFIX)
