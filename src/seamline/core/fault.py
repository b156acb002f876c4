"""Moments of a run at which something may be made to go wrong, and those who do it: for tests of recovery."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

Phase = Literal["start", "join", "step", "checkpoint", "finish"]
"""A worker starts; it has found its peers; it begins a step; it has written a checkpoint that is not in its place yet;
it has done its last step."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where one worker is. ``step`` counts the steps that are done, ``attempt`` the starts of the run from 0 on."""

    phase: Phase
    rank: int
    step: int
    attempt: int


class Fault(Protocol):
    """Something that goes wrong at some moments."""

    def strike(self, moment: Moment) -> None:
        """Do harm if this is the moment."""
        ...


def strike(faults: Iterable[Fault], phase: Phase, rank: int, step: int, attempt: int) -> None:
    for fault in faults:
        fault.strike(Moment(phase, rank, step, attempt))
