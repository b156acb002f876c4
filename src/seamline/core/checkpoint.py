"""Checkpoints that are whole or absent: written aside, made durable, then renamed into place.

A model directory holds ``checkpoints/run-0001/fit-1/step-0000000120/``. A program that starts from nothing opens a new
run; its first ``fit`` is ``fit-1``, the next ``fit-2``. So the same program, started again, finds for each ``fit`` the
newest checkpoint of that ``fit``, never a leftover of another.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamline import __version__
from seamline.core.errors import CheckpointError

CARD = "seamline.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """When to save, and how many to keep: after so many steps, so many epochs, or both."""

    every_steps: int | None = None
    every_epochs: int | None = 1
    keep: int | None = 2

    def __post_init__(self) -> None:
        for name in ("every_steps", "every_epochs", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name} >= 1` must hold, but got {name}={value}")

    def due_after_step(self, step: int) -> bool:
        return self.every_steps is not None and step % self.every_steps == 0

    def due_after_epoch(self, epoch: int) -> bool:
        """``epoch`` counts from 0."""
        return self.every_epochs is not None and (epoch + 1) % self.every_epochs == 0


def write_folder(path: Path, fill: Callable[[Path], None], *, card: dict[str, Any]) -> None:
    """Let ``fill`` write files into a folder that appears at ``path`` complete or not at all.

    What stood at ``path`` before stays until the new folder is on disk.
    """
    aside = path.with_name(f".writing-{path.name}-{os.getpid()}")
    try:
        aside.mkdir(parents=True)
        fill(aside)
        files = {file.name: file.stat().st_size for file in sorted(aside.iterdir())}
        card = {"format": FORMAT, "seamline": __version__, **card, "files": files}
        (aside / CARD).write_text(json.dumps(card, indent=1))
        for file in aside.iterdir():
            _flush_to_disk(file)
        _flush_to_disk(aside)
        _put_in_place(aside, path)
    except BaseException as error:
        shutil.rmtree(aside, ignore_errors=True)
        if not isinstance(error, Exception):
            raise
        raise CheckpointError(
            f"{path} could not be written ({error}); what was saved there before is unharmed"
        ) from error


def _put_in_place(aside: Path, path: Path) -> None:
    replaced = path.with_name(f".replaced-{path.name}-{os.getpid()}")
    if path.exists():
        path.rename(replaced)
    try:
        aside.rename(path)
    except OSError:
        replaced.rename(path)
        raise
    _flush_to_disk(path.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _flush_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_card(path: Path) -> dict[str, Any]:
    """The card of a saved folder, after a check that its files are all there."""
    try:
        card: dict[str, Any] = json.loads((path / CARD).read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} holds nothing saved by Seamline: it has no {CARD}") from None
    except ValueError as error:
        raise CheckpointError(f"{path / CARD} is not readable JSON ({error})") from error
    if not isinstance(card, dict):
        raise CheckpointError(f"{path / CARD} holds a {type(card).__name__} where a card should be")
    if card.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} has format {card.get('format')}, this Seamline {__version__} reads format {FORMAT}"
        )
    for name, size in card["files"].items():
        file = path / name
        if not file.is_file() or file.stat().st_size != size:
            raise CheckpointError(f"{path} is damaged: {name} should have {size} bytes")
    return card


class ModelDirectory:
    """Where one model's checkpoints live, run by run and ``fit`` by ``fit``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._checkpoints = Path(path).absolute() / "checkpoints"

    def new_run(self) -> Path:
        """The folder of a run that starts from nothing."""
        last = max((_number(run) for run in self._runs()), default=0)
        return self._checkpoints / f"run-{last + 1:04d}"

    def newest_run(self) -> Path | None:
        """The last run whose first ``fit`` has left a checkpoint."""
        runs = sorted(self._runs(), reverse=True)
        return next((run for run in runs if newest(fit_folder(run, 1)) is not None), None)

    def newest(self) -> Path | None:
        """The last complete checkpoint of the last run that has any."""
        for run in sorted(self._runs(), reverse=True):
            for fit in sorted(run.glob("fit-*"), key=_number, reverse=True):
                found = newest(fit)
                if found is not None:
                    return found
        return None

    def clean(self) -> None:
        """Remove what a killed writer left behind, and finish a replacement that it had begun."""
        for half in self._checkpoints.glob("run-*/fit-*/.writing-*"):
            shutil.rmtree(half, ignore_errors=True)
        for old in self._checkpoints.glob("run-*/fit-*/.replaced-*"):
            place = old.parent / old.name.removeprefix(".replaced-").rpartition("-")[0]
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                old.rename(place)

    def _runs(self) -> Iterator[Path]:
        return self._checkpoints.glob("run-*")


def fit_folder(run: Path, number: int) -> Path:
    return run / f"fit-{number}"


def newest(fit: Path) -> Path | None:
    """The last complete checkpoint of one ``fit``."""
    for step in sorted(fit.glob("step-*"), reverse=True):
        with contextlib.suppress(CheckpointError):
            read_card(step)
            return step
    return None


def step_folder(fit: Path, step: int) -> Path:
    return fit / f"step-{step:010d}"


def forget_old(fit: Path, keep: int | None) -> None:
    """Delete all but the newest ``keep`` checkpoints of a ``fit``."""
    if keep is not None:
        for old in sorted(fit.glob("step-*"), reverse=True)[keep:]:
            shutil.rmtree(old)


def _number(path: Path) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
