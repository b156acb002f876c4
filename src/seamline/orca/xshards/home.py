"""The place where shards lie: the engine that was active when they were made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seamline.core import machine, registry
from seamline.core.collection import Collection
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError
from seamline.orca.context import OrcaContext


@dataclass(frozen=True, slots=True)
class Home:
    """An engine, and the context that it belongs to, if it does."""

    engine: Engine
    slots: int
    context: OrcaContext | None = None

    @classmethod
    def here(cls) -> Home:
        """That of the active context; without one, this process."""
        context = OrcaContext.current()
        if context is None:
            return cls(registry.engine("inline"), machine.cores().count)
        slots = max(1, context.capacity.slots)
        return cls(context.engine(slots), slots, context)

    @classmethod
    def of(cls, engine: Engine) -> Home:
        """That of an engine whose data is to be used where it is, in the active context or beside it."""
        here = cls.here()
        return cls(engine, here.slots, here.context)

    def collection(self, items: Sequence[Any]) -> Collection:
        self.check()
        return self.engine.collection(items)

    def check(self) -> None:
        """Raise if the context has been stopped, and the shards with it."""
        if self.context is not None and OrcaContext.current() is not self.context:
            raise SeamlineError(
                "the context that these shards lie in was stopped; make them again in the active context, or save "
                "them before it is stopped"
            )
