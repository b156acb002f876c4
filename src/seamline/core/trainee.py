"""What a run needs of the model in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from seamline.core.framework import State


class Trainee(Protocol):
    """Each framework has one."""

    framework: str

    @property
    def model(self) -> Any: ...

    def state(self) -> State: ...

    def snapshot(self) -> State:
        """A state that does not change with the model; good until the next one is asked for."""
        ...

    def load(self, state: State) -> None: ...

    def mark(self, *, epoch: bool = False) -> None:
        """Remember what a step, or the end of an epoch, changes before all workers have agreed to it."""
        ...

    def take_back(self) -> None:
        """Undo what has changed since the mark."""
        ...

    def write(self, state: State, folder: Path) -> None: ...

    def read(self, folder: Path) -> State: ...
