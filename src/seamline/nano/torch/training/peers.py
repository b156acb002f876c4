"""The processes that train together, as each of them sees them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Peers(Protocol):
    """Which of how many processes this is."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Alone:
    """A program that trains in one process."""

    rank: int = 0
    size: int = 1
