"""The checkpoints of a run: where it goes on from, and what it leaves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamline.core import checkpoint
from seamline.core.errors import CheckpointError
from seamline.core.framework import Job
from seamline.core.place import Place
from seamline.core.saver import Saver
from seamline.core.trainee import Trainee

POSITION = "run.json"
"""The file that says where in the data a checkpoint is."""


class Archive:
    """Checkpoints in the folder of a job, each the state of a trainee with its position."""

    def __init__(self, job: Job, trainee: Trainee) -> None:
        self._saving = job.saving
        self._start_from = job.start_from
        self.signature = {**job.signature, "seed": job.seed}
        self._trainee = trainee
        self._saver = Saver()

    @property
    def open(self) -> bool:
        """Whether this run leaves checkpoints at all."""
        return self._saving is not None

    def due_after_step(self, step: int) -> bool:
        return self._saving is not None and self._saving.policy.due_after_step(step)

    def due_after_epoch(self, epoch: int) -> bool:
        return self._saving is not None and self._saving.policy.due_after_epoch(epoch)

    def source(self, *, lost_all: bool) -> Place | None:
        """The checkpoint to go on from: the newest of this run itself if all its workers were lost at once."""
        saving = self._saving
        left = checkpoint.newest(saving.folder) if saving and lost_all else None
        return left or (saving and saving.resume) or self._start_from

    def read(self, path: Place) -> dict[str, Any]:
        """Give the trainee the state of a checkpoint, and say where in the data that is."""
        with checkpoint.opened(path) as folder:
            position: dict[str, Any] = json.loads((folder / POSITION).read_text())
            self._check_signature(path, position["signature"])
            self._trainee.load(self._trainee.read(folder))
        return position

    def write(self, step: int, position: dict[str, Any], last: Callable[[], None]) -> None:
        """Begin to write the state of this moment; ``last`` is called when all of it is there but not yet valid."""
        assert self._saving is not None
        state, text = self._trainee.snapshot(), json.dumps(position)

        def fill(folder: Path) -> None:
            self._trainee.write(state, folder)
            (folder / POSITION).write_text(text)
            last()

        path = checkpoint.step_folder(self._saving.folder, step)
        card = {"kind": "checkpoint", "framework": self._trainee.framework}
        self._saver.save(path, fill, card, self._saving.policy.keep)

    def written(self, *, wait: bool = False) -> Place | None:
        """The checkpoint that is complete since the last time somebody asked."""
        return self._saver.written(wait=wait)

    def _check_signature(self, path: Place, saved: dict[str, Any]) -> None:
        for name, value in self.signature.items():
            if saved.get(name, value) != value:
                raise CheckpointError(
                    f"{path} was made with {name}={saved[name]}, this run has {name}={value}: "
                    "its place in the data means nothing here. Use the same value, or resume=None"
                )
