"""Who reads which row when: a function of the seed, the epoch and the step, never of the number of workers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def epoch_order(rows: int, *, shuffle: bool, seed: int, epoch: int) -> Indices:
    """The order in which an epoch visits all rows, the same on every worker and in every restart."""
    if not shuffle:
        return np.arange(rows, dtype=np.int64)
    return np.random.Generator(np.random.Philox(key=[seed, epoch])).permutation(rows).astype(np.int64)


def step_count(rows: int, batch_size: int, *, drop_last: bool = False) -> int:
    """Batches in an epoch; the last may be short unless it is dropped."""
    return rows // batch_size if drop_last else -(-rows // batch_size)
