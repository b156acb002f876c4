"""Where workers live while a program holds on to it: this machine, a Spark session, a Ray connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from seamline.core.engine import Engine


@dataclass(frozen=True, slots=True)
class Capacity:
    """What there is room for now; ``memory_bytes`` is that of one node, where it is known.

    A slot is a place for one worker; ``free`` are those that nobody uses, where somebody else might. An elastic cluster
    takes nodes away while they have nothing to do.
    """

    nodes: int
    slots: int
    cores_per_node: int
    memory_bytes: int | None = None
    elastic: bool = False
    free: int | None = None

    def room(self, held: int = 0) -> int:
        """The slots that a run could have which holds so many of them now."""
        return self.slots if self.free is None else min(self.slots, self.free + held)


class Cluster(Protocol):
    """Something opened once and used for many runs."""

    remote: bool
    """Whether workers have an environment of their own, which may differ from the driver's."""

    @property
    def description(self) -> str:
        """What this is and who started it, in a few words."""
        ...

    @property
    def handles(self) -> Mapping[str, Any]:
        """The objects that the user may want, by the library that they are of."""
        ...

    def engine(self, workers: int) -> Engine:
        """The engine for runs of this many workers; it belongs to the cluster and is closed with it."""
        ...

    def capacity(self) -> Capacity: ...

    def mend(self) -> None:
        """Start again what has ended of it, where a run that has lost workers would find nothing to go on with."""
        ...

    def warnings(self) -> list[str]:
        """What in its settings will hurt, each with what to do."""
        ...

    def close(self) -> None:
        """Stop what was started here; leave alone what was there before. Twice is as good as once."""
        ...
