"""Small batches that add up to a large one."""

from __future__ import annotations


def accumulate_to(target_batch: int, batch_size: int) -> int:
    """How many batches of ``batch_size`` make one update over ``target_batch`` rows."""
    if batch_size < 1 or target_batch < 1:
        raise ValueError(f"`target_batch` and `batch_size` must be positive, but got ({target_batch}, {batch_size})")
    steps, left = divmod(target_batch, batch_size)
    if left or not steps:
        raise ValueError(
            f"target_batch={target_batch} is not a multiple of batch_size={batch_size}; "
            f"the nearest that is: {max(steps, 1) * batch_size} or {(max(steps, 1) + 1) * batch_size}"
        )
    return steps
