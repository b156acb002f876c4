"""Files that several folders share, and folders that go with those who need them."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path


def link_or_copy(source: Path, target: Path) -> None:
    """The same file in another place, without a second copy where the file system can do that."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


class Scratch:
    """A folder that is removed when nobody holds it any more, at the end of the program at the latest."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="seamline-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def folder(self, name: str) -> Path:
        made = self.path / name
        made.mkdir()
        return made
