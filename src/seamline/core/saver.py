"""Writing checkpoints beside the run that they are of."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from seamline.core import checkpoint
from seamline.core.place import Place


class Saver:
    """One thread that writes one checkpoint at a time, and removes old ones after that.

    What could not be written is raised to whoever asks next.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "seamline-saver")
        self._writing: Future[Place] | None = None

    def save(self, path: Place, fill: Callable[[Path], None], card: dict[str, Any], keep: int | None) -> None:
        """Begin to write; whatever ``fill`` writes must not change any more. The last one has to be done."""
        assert self._writing is None

        def write() -> Place:
            checkpoint.write_folder(path, fill, card=card)
            checkpoint.forget_old(path.parent, keep)
            return path

        self._writing = self._thread.submit(write)

    def written(self, *, wait: bool = False) -> Place | None:
        """The checkpoint that is complete since the last time somebody asked."""
        if self._writing is None or not (wait or self._writing.done()):
            return None
        writing, self._writing = self._writing, None
        return writing.result()
