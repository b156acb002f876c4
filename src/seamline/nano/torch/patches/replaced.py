"""Attributes that hold something else for a while."""

from __future__ import annotations

from typing import Any

_ABSENT = object()


class Replaced:
    """Puts values into attributes and gives each its own back, absent ones too."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def put(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def names(self) -> tuple[str, ...]:
        return tuple(f"{owner.__name__}.{name}" for owner, name, _ in self._before)

    def undo(self) -> None:
        while self._before:
            owner, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
