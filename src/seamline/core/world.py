"""What a worker knows of its peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from seamline.core.errors import PeerLostError

T = TypeVar("T")


class World(Protocol):
    """One worker's view of the run that it is part of."""

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def host(self) -> str:
        """The address under which this worker's machine is reached by its peers."""
        ...

    def all_gather(self, value: T) -> list[T]:
        """Give every worker every worker's value, in rank order.

        The only collective that an engine owes: frameworks use it to find each other and then talk over
        a transport of their own. Raises ``PeerLostError`` when a peer can never answer.
        """
        ...

    def report(self, message: object) -> None:
        """Send something small to the driver; nobody waits for it."""
        ...

    @property
    def generation(self) -> int:
        """How often workers of this run were replaced, as far as this worker knows."""
        ...

    def renew(self) -> None:
        """After ``PeerLostError``: wait until those who were lost are replaced, and belong to the next generation.

        Raises ``PeerLostError`` where nobody is replaced.
        """
        ...


@dataclass(frozen=True, slots=True)
class Alone:
    """The world of a single worker; its driver is whoever listens."""

    rank: int = 0
    size: int = 1
    host: str = "127.0.0.1"
    generation: int = 0

    def all_gather(self, value: T) -> list[T]:
        return [value]

    def report(self, message: object) -> None:
        """Nobody listens."""

    def renew(self) -> None:
        raise PeerLostError("one worker alone has no peers that could be replaced")
