"""What an engine needs beyond Python packages, found out without starting anything."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Prerequisites(Protocol):
    """An engine's class that needs something of the machine, such as Java."""

    @staticmethod
    def missing() -> str | None:
        """What it lacks and what to do about it, in one sentence; ``None`` where it should start."""
        ...
