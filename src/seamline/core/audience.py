"""The callbacks of a run: who is told on this worker, and what they would have to know on another."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from seamline.core import pickling
from seamline.core.errors import UnpicklableError
from seamline.core.events import Callback

if TYPE_CHECKING:
    from seamline.core.run import Run


class Audience:
    """All callbacks of a run; those that work on this worker are told."""

    def __init__(self, callbacks: Sequence[Callback], rank: int) -> None:
        self._all = callbacks
        self._here = [callback for callback in callbacks if callback.everywhere or rank == 0]
        self._by_step = [callback for callback in self._here if _overrides(callback, "on_step_end")]
        self.steers_by_step = any(callback.steers and _overrides(callback, "on_step_end") for callback in callbacks)
        self._before: list[dict[str, Any]] = []

    def tell(self, run: Run, event: str, *details: Any) -> None:
        for callback in self._by_step if event == "on_step_end" else self._here:
            getattr(callback, event)(run, *details)

    def mark(self) -> None:
        """Remember what they know, in case that what they are told next has to be taken back."""
        self._before = [callback.state_dict() for callback in self._here]

    def take_back(self) -> None:
        for callback, state in zip(self._here, self._before, strict=True):
            callback.load_state_dict(state)

    def states(self) -> list[dict[str, Any]]:
        return [callback.state_dict() for callback in self._all]

    def follow(self, states: list[dict[str, Any]]) -> None:
        """Know what the first worker's callbacks know, in case that another has to take its place."""
        for callback, state in zip(self._all, states, strict=False):
            if callback not in self._here:
                callback.load_state_dict(state)

    def to_list(self) -> list[tuple[str, dict[str, Any]]]:
        return [(type(callback).__name__, callback.state_dict()) for callback in self._all]

    def load(self, saved: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Give each callback its own state: of its class, in order."""
        left = list(saved)
        for callback in self._all:
            match = next((entry for entry in left if entry[0] == type(callback).__name__), None)
            if match is not None:
                left.remove(match)
                callback.load_state_dict(match[1])

    def attributes(self) -> list[dict[str, Any]]:
        """What goes home to the objects that the user made."""
        return [_travelling(callback) for callback in self._all]


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook) is not getattr(Callback, hook)


def _travelling(callback: Callback) -> dict[str, Any]:
    """The attributes that can go home; one that cannot must not cost the whole run."""
    attributes = {}
    for name, value in vars(callback).items():
        try:
            pickling.dumps(value, name)
        except UnpicklableError as error:
            warnings.warn(f"{type(callback).__name__}.{name} stays on its worker: {error}", stacklevel=2)
        else:
            attributes[name] = value
    return attributes
