"""Random numbers as a function of where a run is, so that a restart needs no saved generator."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

_MASK = (1 << 64) - 1


def derive(seed: int, *numbers: int) -> int:
    """A 64-bit seed from a seed and any numbers; near inputs give unrelated outputs (splitmix64)."""
    state = 0
    for number in (seed, *numbers):
        state = (state + 0x9E3779B97F4A7C15 + (number & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def seed_python_and_numpy(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


def state() -> Any:
    """Where the generators of Python and numpy are."""
    return random.getstate(), np.random.get_state()


def set_state(saved: Any) -> None:
    random.setstate(saved[0])
    np.random.set_state(saved[1])


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put the generators of Python and numpy back as they were, afterwards."""
    before = state()
    try:
        yield
    finally:
        set_state(before)
