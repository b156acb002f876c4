"""One worker, in the process that asked: breakpoints, prints and notebooks behave as always."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seamline.core.engine import Listener
from seamline.core.world import Alone, World

Shard = TypeVar("Shard")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class InlineWorld(Alone):
    """A world of one whose reports go straight to the listener."""

    listen: Listener | None = None

    def report(self, message: object) -> None:
        if self.listen is not None:
            self.listen(0, message)


class InlineEngine:
    """Run the only worker here and now; its exceptions are the caller's."""

    name = "inline"

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
    ) -> list[Result]:
        if len(shards) != 1:
            raise ValueError(f"the inline engine runs 1 worker, not {len(shards)}; use the local engine")
        return [task(InlineWorld(listen=listen), shards[0])]

    def close(self) -> None:
        """Nothing outlives ``run``."""
