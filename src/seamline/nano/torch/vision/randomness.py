"""Where random transforms draw from: torch's generator, or within a data set one that belongs to the sample.

So ``torch.manual_seed`` steers a transform that is called by hand, and a sample of a data set looks the same no matter
which process loads it.
"""

from __future__ import annotations

import contextlib
import threading

import torch

from seamline.core import rng


class OfSample:
    """A context in which random transforms draw from this seed alone, in this thread.

    Python's, numpy's and torch's own generators are the caller's until ``seed_others``, and the caller's afterwards.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generator: torch.Generator | None = None
        self._others: contextlib.ExitStack | None = None

    def __enter__(self) -> None:
        self._before = _current.sample
        _current.sample = self

    def __exit__(self, *_: object) -> None:
        _current.sample = self._before
        if self._others is not None:
            self._others.close()

    @property
    def generator(self) -> torch.Generator:
        """Made when the first number is drawn."""
        if self._generator is None:
            self._generator = torch.Generator().manual_seed(self._seed >> 1)
        return self._generator

    def seed_others(self) -> None:
        if self._others is None:
            self._others = contextlib.ExitStack()
            self._others.enter_context(rng.restored())
            self._others.enter_context(torch.random.fork_rng(devices=()))
            rng.seed_python_and_numpy(self._seed)
            torch.default_generator.manual_seed(self._seed >> 1)


class _Current(threading.local):
    sample: OfSample | None = None


_current = _Current()


def seed_others() -> None:
    """For transforms that are not ours: let the generators that they draw from belong to the sample too, if any."""
    if _current.sample is not None:
        _current.sample.seed_others()


def _generator() -> torch.Generator | None:
    return None if _current.sample is None else _current.sample.generator


def uniform(low: float, high: float) -> float:
    return float(torch.empty(1).uniform_(low, high, generator=_generator()))


def integer(low: int, high: int) -> int:
    """At least ``low`` and less than ``high``."""
    return int(torch.randint(low, high, (1,), generator=_generator()))


def chance(probability: float) -> bool:
    return float(torch.rand(1, generator=_generator())) < probability


def fractions(count: int) -> list[float]:
    """Numbers between 0 and 1."""
    numbers: list[float] = torch.rand(count, generator=_generator()).tolist()
    return numbers


def signs(count: int) -> list[bool]:
    """Coins: whether each is positive."""
    return [bool(coin) for coin in torch.randint(2, (count,), generator=_generator())]


def order(count: int) -> list[int]:
    numbers: list[int] = torch.randperm(count, generator=_generator()).tolist()
    return numbers


def weighted(weights: list[float]) -> int:
    """A position, by the weights."""
    return int(torch.multinomial(torch.tensor(weights, dtype=torch.float32), 1, generator=_generator()))


def normal(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype).normal_(generator=_generator())
