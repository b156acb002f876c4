"""How many workers a run has: as many as were asked for, or as many as there is room for at the time."""

from __future__ import annotations

import time
from dataclasses import dataclass

from seamline.core import machine
from seamline.core.engine import Listener
from seamline.core.errors import SeamlineError
from seamline.core.events import Saved
from seamline.orca.context import OrcaContext

_SETTLE_S = 3.0
"""How long a cluster that has lost something may take to replace it, before a run goes on with less."""
_REPLACED_WITHIN_S = 60.0
"""How long a run that cannot go on with less waits for another machine or executor."""
_LOOK_EVERY_S = 0.2


class MoreRoomError(SeamlineError):
    """A run that goes on with fewer workers than it may have could now have more; nobody but ``fit`` sees this."""


@dataclass(frozen=True, slots=True)
class Crew:
    """From ``least`` to ``most`` workers."""

    least: int
    most: int

    @classmethod
    def of(cls, asked: int | tuple[int, int] | None) -> Crew:
        """A number, a pair, or one worker for each node of the active context."""
        if isinstance(asked, tuple):
            if len(asked) != 2 or not all(isinstance(each, int) for each in asked) or not 1 <= asked[0] <= asked[1]:
                raise ValueError(f"workers={asked} must be (fewest, most), as in workers=(2, 8), or a number")
            return cls(*asked)
        if asked is None:
            context = OrcaContext.current()
            asked = 1 if context is None else context.default_workers()
        return cls(asked, asked)

    @property
    def elastic(self) -> bool:
        return self.least < self.most

    def size(self, *, patient: bool = False) -> int:
        """How many workers to start now; ``patient`` where something was lost that may come back at once."""
        if patient:
            self._await_room()
        if not self.elastic:
            return self.most
        deadline = time.monotonic() + _SETTLE_S  # what ended just now may still count as used
        while (size := self.could_be(0)) < self.most and time.monotonic() < deadline and self._would_fit():
            time.sleep(_LOOK_EVERY_S)
        return size

    def could_be(self, held: int) -> int:
        """How many workers there is room for, where this run has ``held`` of it."""
        context = OrcaContext.current()
        room = machine.cores().count if context is None else context.capacity.room(held)
        return max(self.least, min(self.most, room))

    def _would_fit(self) -> bool:
        context = OrcaContext.current()
        return context is not None and context.has_room(self.most)

    def _await_room(self) -> None:
        """Return when there is room for all; or for the least, where nothing else has come for a while."""
        context, began = OrcaContext.current(), time.monotonic()
        while context is not None and not context.has_room(self.most):
            enough = self.elastic and context.has_room(self.least)
            if time.monotonic() - began > (_SETTLE_S if enough else _REPLACED_WITHIN_S):
                return
            time.sleep(_LOOK_EVERY_S)


class Growth:
    """A listener that ends a run after a checkpoint when it could go on with more workers."""

    def __init__(self, listen: Listener, crew: Crew, size: int) -> None:
        self._listen = listen
        self._crew = crew
        self._size = size

    def __call__(self, rank: int, message: object) -> None:
        self._listen(rank, message)
        if isinstance(message, Saved) and self._crew.could_be(self._size) > self._size:
            raise MoreRoomError("there is room for more workers")
