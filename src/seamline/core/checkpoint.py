"""Checkpoints that are whole or absent, on a disk or behind a URL.

A model directory holds ``checkpoints/run-0001/fit-1/step-0000000120/``. A program that starts from nothing opens a new
run; its first ``fit`` is ``fit-1``, the next ``fit-2``. So the same program, started again, finds for each ``fit`` the
newest checkpoint of that ``fit``, never a leftover of another.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamline import __version__
from seamline.core import place
from seamline.core.errors import CheckpointError
from seamline.core.place import Place

CARD = "seamline.json"
FORMAT = 1
PART = "part"
"""In a card: in which folder beside it the files are, where that is another."""


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


def write_folder(path: Place, fill: Callable[[Path], None], *, card: dict[str, Any]) -> None:
    """Let ``fill`` write files into a folder that appears at ``path`` complete or not at all.

    What stood at ``path`` before stays until the new folder is there.
    """
    keeper = place.keeper(path)
    try:
        with keeper.aside() as aside:
            fill(aside)
            files = {file.name: file.stat().st_size for file in sorted(aside.iterdir())}
            part = keeper.part_for(CARD)
            card = {"format": FORMAT, "seamline": __version__, **card, "files": files, **({PART: part} if part else {})}
            (aside / CARD).write_text(json.dumps(card, indent=1))
            keeper.put(aside, part, CARD)
    except Exception as error:
        raise CheckpointError(
            f"{path} could not be written ({error}); what was saved there before is unharmed"
        ) from error


def read_card(path: Place) -> dict[str, Any]:
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
    there = place.keeper(_files(path, card)).sizes()
    for name, size in card["files"].items():
        if there.get(name) != size:
            raise CheckpointError(f"{path} is damaged: {name} should have {size} bytes")
    return card


@contextlib.contextmanager
def opened(path: Place) -> Iterator[Path]:
    """The files of a saved folder, on this machine, for as long as somebody reads them."""
    with place.keeper(_files(path, read_card(path))).on_disk() as folder:
        yield folder


def _files(path: Place, card: dict[str, Any]) -> Place:
    part = str(card.get(PART, ""))
    if "/" in part or part == "..":
        raise CheckpointError(f"the card of {path} was changed: it names files of another folder, {part}")
    return path / part if part else path


class ModelDirectory:
    """Where one model's checkpoints live, run by run and ``fit`` by ``fit``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._checkpoints = place.at(path) / "checkpoints"

    def new_run(self) -> Place:
        """The folder of a run that starts from nothing."""
        last = max((_number(run) for run in self._runs()), default=0)
        return self._checkpoints / f"run-{last + 1:04d}"

    def newest_run(self) -> Place | None:
        """The last run whose first ``fit`` has left a checkpoint."""
        return next((run for run in _last_first(self._runs()) if newest(fit_folder(run, 1)) is not None), None)

    def newest(self) -> Place | None:
        """The last complete checkpoint of the last run that has any."""
        for run in _last_first(self._runs()):
            for fit in sorted(run.glob("fit-*"), key=_number, reverse=True):
                found = newest(fit)
                if found is not None:
                    return found
        return None

    def clean(self) -> None:
        """Remove what a killed writer left behind, and finish a replacement that it had begun."""
        place.keeper(self._checkpoints).tidy("run-*/fit-*/step-*", CARD)

    def _runs(self) -> Iterator[Place]:
        return self._checkpoints.glob("run-*")


def fit_folder(run: Place, number: int) -> Place:
    return run / f"fit-{number}"


def newest(fit: Place) -> Place | None:
    """The last complete checkpoint of one ``fit``."""
    for step in _last_first(fit.glob("step-*")):
        with contextlib.suppress(CheckpointError):
            read_card(step)
            return step
    return None


def step_folder(fit: Place, step: int) -> Place:
    return fit / f"step-{step:010d}"


def forget_old(fit: Place, keep: int | None) -> None:
    """Delete all but the newest ``keep`` checkpoints of a ``fit``."""
    if keep is not None:
        for old in _last_first(fit.glob("step-*"))[keep:]:
            place.keeper(old).remove(CARD)


def _last_first(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda each: each.name, reverse=True)


def _number(path: Place) -> int:
    digits = path.name.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
