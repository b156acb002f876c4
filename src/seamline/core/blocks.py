"""What a task that takes part in an exchange owes: one block of bytes for each of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seamline.core.engine import Block, Item


def produced(produce: Callable[[Item], Sequence[Block]], item: Item, count: int) -> list[Block]:
    """The blocks of one item, counted and looked at before any goes out."""
    blocks = list(produce(item))
    if len(blocks) != count:
        raise ValueError(f"produce gave {len(blocks)} blocks, but {count} items take part; give one block to each")
    for number, block in enumerate(blocks):
        if not isinstance(block, (bytes, bytearray, memoryview)):
            raise TypeError(f"block {number} is of type {type(block).__name__}; give bytes or a memoryview")
    return blocks
