"""Whether rows come out the same each time they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from seamline.core import rng
from seamline.frameworks.torch.frozen.bits import same_bits
from seamline.frameworks.torch.frozen.snapshot import generators
from seamline.frameworks.torch.randomness import random_numbers_restored, seed_everything

ROWS_TRIED = 4


def repeatable(dataset: Any, collate_fn: Callable[[list[Any]], Any], indices: Sequence[int]) -> str | None:
    """``None`` if the data set gives the same rows each time, else the reason why it does not."""

    def read(chosen: Sequence[int]) -> Any:
        several = getattr(dataset, "__getitems__", None)
        return collate_fn(several(list(chosen)) if several else [dataset[index] for index in chosen])

    return varying(read, indices)


def varying(read: Callable[[Sequence[int]], Any], indices: Sequence[int]) -> str | None:
    """Why a few rows, read three times under different random numbers, are not the same; ``None`` if they are."""
    first = None
    with random_numbers_restored():
        for seed in range(3):
            seed_everything(rng.derive(seed, 77))
            before = generators()
            leaves, spec = pytree.tree_flatten(read(indices[:ROWS_TRIED]))
            if generators() != before:
                return "reading it draws random numbers"
            first = first or (leaves, spec)
            if spec != first[1] or not all(map(_same, leaves, first[0])):
                return "it reads differently each time"
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and same_bits(one, other)
    same: Any = one == other
    return bool(same.all() if hasattr(same, "all") else same)
