"""One variable that makes programs faster here, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable of the environment with the value that this machine wants, and the reason in a few words."""

    name: str
    value: str
    why: str
