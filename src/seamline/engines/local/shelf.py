"""What tasks leave in memory for other tasks, so that it goes from process to process and not through the driver.

The memory is the driver's: a process that dies takes nothing away, and nothing is left when the driver is gone.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from seamline.engines.local.block import Block, Place, nameless
from seamline.engines.local.memory import Memory
from seamline.engines.mapped import Left

_ROOM = 1 << 40
"""Bytes that a task may fill; what it does not fill takes no memory."""
_BOARDS = 8
"""Pieces of memory that tasks share, at most: into one of them only one process writes at a time."""


class Shelf:
    """Memory with a room for each of many tasks; it is given back when nothing on it is held any more."""

    def __init__(self) -> None:
        self._boards: dict[int, Memory] = {}

    def room(self, number: int) -> Room:
        place, board = divmod(number, _BOARDS)
        if board not in self._boards:
            fd = nameless(0)
            self._boards[board] = Memory.of(fd)
            weakref.finalize(self, os.close, fd)
        return Room(self._boards[board], place * _ROOM)

    def hold(self, left: Left) -> Left:
        """What a task has left, which keeps the memory from now on."""
        assert isinstance(left, Kept)
        return replace(left, _shelf=self)


@dataclass(frozen=True, slots=True)
class Room:
    """A part of a shelf, on its way to the task that fills it."""

    memory: Memory
    base: int

    def leave(self, values: Sequence[Any]) -> list[Left]:
        """Write objects down; a task that is tried again writes over what was left the first time."""
        block = Block(self.memory.open(), self.base)
        try:
            places = [block.store(value, "the answer") for value in values]
            block.flush()
        finally:
            block.close()
        return [Kept(self, place) for place in places]


@dataclass(frozen=True, slots=True)
class Kept(Left):
    """Where an object is; only the driver's own holds the shelf."""

    _room: Room
    _place: Place
    _shelf: Shelf | None = field(default=None, compare=False, repr=False)

    def take(self) -> Any:
        block = Block(self._room.memory.open(), self._room.base)
        try:
            return block.copy(self._place)
        finally:
            block.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, (self._room, self._place)
