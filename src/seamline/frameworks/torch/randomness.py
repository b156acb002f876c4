"""Seeding torch with everything else, and leaving the caller's random numbers as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from seamline.core import rng


def seed_everything(seed: int) -> None:
    rng.seed_python_and_numpy(seed)
    torch.manual_seed(seed >> 1)


def random_state() -> Any:
    """Where all generators are."""
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return rng.state(), torch.get_rng_state(), devices


def set_random_state(saved: Any) -> None:
    others, ours, devices = saved
    rng.set_state(others)
    torch.set_rng_state(ours)
    if devices:
        torch.cuda.set_rng_state_all(devices)


@contextlib.contextmanager
def random_numbers_restored() -> Iterator[None]:
    """Leave the random numbers of a notebook as they were."""
    with rng.restored(), torch.random.fork_rng():
        yield
