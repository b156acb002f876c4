"""Who reads what where workers do not see the same files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seamline.core.errors import DataError
from seamline.data.arrow.blocks import Blocks
from seamline.data.arrow.chunks import Chunk

Stretch = tuple[int, int]
"""Rows from one number to another, as they lie."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The rows of each worker, as stretches."""

    stretches: tuple[tuple[Stretch, ...], ...]

    @property
    def rows(self) -> list[int]:
        return [sum(high - low for low, high in own) for own in self.stretches]

    def blocks(self, everything: Blocks, worker: int) -> Blocks:
        """One worker's rows as blocks."""
        pieces = [everything.piece(low, high) for low, high in self.stretches[worker]]
        return Blocks(
            *(
                np.concatenate([getattr(p, name) for p in pieces] or [np.empty(0, np.int64)])
                for name in ("chunk", "start", "size")
            )
        )


def all_of(blocks: Blocks, workers: int) -> Sight:
    """Everybody sees everything: equal stretches."""
    return Sight(tuple(((blocks.rows * n // workers, blocks.rows * (n + 1) // workers),) for n in range(workers)))


def shared_by_sight(chunks: Sequence[Chunk], seen: Sequence[Sequence[int]]) -> Sight:
    """Each chunk to those who see it, in equal shares."""
    viewers: dict[int, tuple[int, ...]] = dict.fromkeys(range(len(chunks)), ())
    for worker, numbers in enumerate(seen):
        for number in numbers:
            viewers[number] = (*viewers[number], worker)
    lost = next((n for n, who in viewers.items() if not who), None)
    if lost is not None:
        raise DataError(
            f"rows of the data lie on {chunks[lost].home or 'another machine'}, where no worker can read them; "
            "say cache_dir='...', a folder that all machines share, or use a worker on every node"
        )
    stretches: list[list[Stretch]] = [[] for _ in seen]
    first = 0
    ends = np.cumsum([sum(chunk.blocks) for chunk in chunks])
    for group in _alike(viewers):
        who = viewers[group[0]]
        first = int(ends[group[0] - 1]) if group[0] else 0
        rows = int(ends[group[-1]]) - first
        for place, worker in enumerate(who):
            low, high = first + rows * place // len(who), first + rows * (place + 1) // len(who)
            if low < high:
                stretches[worker].append((low, high))
    return Sight(tuple(map(tuple, stretches)))


def _alike(viewers: dict[int, tuple[int, ...]]) -> list[list[int]]:
    """Neighbouring chunks that the same workers see."""
    groups: list[list[int]] = []
    for number, who in viewers.items():
        if groups and viewers[groups[-1][-1]] == who:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
