"""Seeding torch with everything else, and leaving the caller's random numbers as they were."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from seamline.core import rng


def seed_everything(seed: int) -> None:
    rng.seed_python_and_numpy(seed)
    torch.manual_seed(seed >> 1)


@contextlib.contextmanager
def random_numbers_restored() -> Iterator[None]:
    """Leave the random numbers of a notebook as they were."""
    with rng.restored(), torch.random.fork_rng():
        yield
