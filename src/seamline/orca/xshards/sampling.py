"""Rows by chance, the same on every engine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seamline.core.collection import Collection
from seamline.orca.xshards import pieces


def check(fractions: Sequence[float]) -> None:
    if not fractions or any(fraction <= 0 for fraction in fractions) or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"fractions must be positive and sum to 1, but got {list(fractions)}")


def part(shards: Collection, fractions: Sequence[float], number: int, seed: int) -> Collection:
    """The rows that go to one part; chance is a function of the seed and of a row's number among all rows."""
    kept = shards.keep()
    starts = (0, *itertools.accumulate(kept.map(_count).collect()))
    ends = [0.0, *itertools.accumulate(fractions)]
    high = np.inf if number == len(fractions) - 1 else ends[number + 1]
    return kept.map(_Between(starts, seed, ends[number], float(high)))


def sampled(shards: Collection, frac: float, replace: bool, seed: int) -> Collection:
    """As many rows in all as pandas would take; how many of each shard is drawn first, then which."""
    if frac < 0 or (frac > 1 and not replace):
        raise ValueError(f"frac must be from 0 to 1, or more with replace=True, but got frac={frac!r}")
    kept = shards.keep()
    sizes = kept.map(_count).collect()
    total = sum(sizes)
    rng = np.random.default_rng(seed)
    wanted = round(frac * total)
    if not total:
        quotas = [0] * len(sizes)
    elif replace:
        quotas = rng.multinomial(wanted, np.array(sizes) / total).tolist()
    else:
        quotas = rng.multivariate_hypergeometric(sizes, wanted, method="marginals").tolist()
    return kept.map(_Drawn(tuple(quotas), replace, seed))


@dataclass(frozen=True, slots=True)
class _Between:
    """The rows whose chance is in a range."""

    starts: tuple[int, ...]
    seed: int
    low: float
    high: float

    def __call__(self, index: int, shard: Any) -> Any:
        drawn = chances(self.seed, self.starts[index], pieces.count(shard))
        return pieces.pick(shard, np.flatnonzero((drawn >= self.low) & (drawn < self.high)))


@dataclass(frozen=True, slots=True)
class _Drawn:
    quotas: tuple[int, ...]
    replace: bool
    seed: int

    def __call__(self, index: int, shard: Any) -> Any:
        rng = np.random.default_rng((self.seed, index))
        size, quota = pieces.count(shard), self.quotas[index]
        return pieces.pick(shard, np.sort(rng.choice(size, quota, replace=self.replace)) if size else np.arange(0))


def chances(seed: int, first: int, count: int) -> NDArray[np.float64]:
    """A number from 0 to 1 for each row of a range, by its number alone."""
    bits = np.random.Philox(key=seed)
    bits.advance(first // 4)  # it makes four numbers at a time
    return np.random.Generator(bits).random(first % 4 + count)[first % 4 :]


def _count(_index: int, shard: Any) -> int:
    return pieces.count(shard)
