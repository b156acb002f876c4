"""How many shards there are, and which of many things go into which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from seamline.orca.xshards.home import Home

T = TypeVar("T")

LARGEST_SHARE = 1 << 30
"""Bytes of files that make one shard at most, if nobody says how many shards there are to be."""


def number_of_shards(asked: int | None, size: int = 0) -> int:
    """As many as were asked for, else one for each worker that there is room for, and more for very large data."""
    if asked is not None:
        if not isinstance(asked, int) or asked < 1:
            raise ValueError(f"num_shards must be a whole number of at least 1, but got num_shards={asked!r}")
        return asked
    return max(Home.here().slots, -(-size // LARGEST_SHARE))


def even_shares(things: Sequence[T], sizes: Sequence[int], count: int) -> list[list[T]]:
    """At most ``count`` lists of neighbours, of about the same size each; at least one, which may be empty."""
    total = sum(sizes) or 1
    shares: list[list[T]] = [[] for _ in range(count)]
    before = 0
    for thing, size in zip(things, sizes, strict=True):
        shares[min(count - 1, (2 * before + size) * count // (2 * total))].append(thing)
        before += size
    return [share for share in shares if share] or [[]]
