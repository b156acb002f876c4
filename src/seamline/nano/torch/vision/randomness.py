"""Where random transforms draw from: torch's generator, or within a data set one that belongs to the sample.

So ``torch.manual_seed`` steers a transform that is called by hand, and a sample of a data set looks the same no matter
which process loads it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

from seamline.core import rng


class _Current(threading.local):
    generator: torch.Generator | None = None


_current = _Current()


@contextlib.contextmanager
def of_sample(seed: int, *, foreign: bool) -> Iterator[None]:
    """Draw from this seed alone, in this thread.

    With ``foreign``, Python's, numpy's and torch's own generators are seeded too and put back afterwards, for
    transforms that are not ours and draw from those.
    """
    before = _current.generator
    _current.generator = torch.Generator().manual_seed(seed >> 1)
    try:
        if not foreign:
            yield
            return
        with rng.restored(), torch.random.fork_rng(devices=()):
            rng.seed_python_and_numpy(seed)
            torch.default_generator.manual_seed(seed >> 1)
            yield
    finally:
        _current.generator = before


def uniform(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high, generator=_current.generator))


def integer(low: int, high: int) -> int:
    """At least ``low`` and less than ``high``."""
    return int(torch.randint(low, high, (1,), generator=_current.generator))


def chance(probability: float) -> bool:
    return float(torch.rand(1, generator=_current.generator)) < probability


def fractions(count: int) -> list[float]:
    """Numbers between 0 and 1."""
    numbers: list[float] = torch.rand(count, generator=_current.generator).tolist()
    return numbers


def signs(count: int) -> list[bool]:
    """Coins: whether each is positive."""
    return [bool(coin) for coin in torch.randint(2, (count,), generator=_current.generator)]


def order(count: int) -> list[int]:
    numbers: list[int] = torch.randperm(count, generator=_current.generator).tolist()
    return numbers


def weighted(weights: list[float]) -> int:
    """A position, by the weights."""
    return int(torch.multinomial(torch.tensor(weights, dtype=torch.float32), 1, generator=_current.generator))


def normal(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype).normal_(generator=_current.generator)
