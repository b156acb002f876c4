"""Memory of the driver that other processes of this machine open by its path.

Like a block it has no name in any file system, and is gone with the driver, however that ends.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from seamline.core.engine import Value
from seamline.engines.local.block import Block, Place

_values: dict[Memory, Any] = {}
"""What this process has read of what others have broadcast."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where memory is: a path, and the number that tells whether it still is what was meant."""

    path: str
    inode: int

    @classmethod
    def of(cls, fd: int) -> Memory:
        """Memory behind a descriptor of this process, as long as that stays open."""
        return cls(f"/proc/{os.getpid()}/fd/{fd}", os.fstat(fd).st_ino)

    def open(self) -> int:
        """A descriptor of our own for it."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise ValueError("what should be read here was released, or its driver is gone") from error
        if os.fstat(fd).st_ino != self.inode:  # the descriptor was closed, and its number taken again
            os.close(fd)
            raise ValueError("what should be read here was released")
        return fd

    def exists(self) -> bool:
        try:
            return Path(self.path).stat().st_ino == self.inode
        except OSError:
            return False

    def load(self, place: Place) -> Any:
        """An object that a block has stored there; its arrays are mapped, and private when written to."""
        block = Block(self.open())
        try:
            return block.load(place)
        finally:
            block.close()


@dataclass(frozen=True, slots=True)
class LocalBroadcast(Generic[Value]):
    """A value in memory that every process of this machine maps."""

    _memory: Memory
    _place: Place
    _block: Block | None = field(default=None, compare=False, repr=False)

    @property
    def value(self) -> Value:
        if self._memory not in _values:
            _values[self._memory] = self._memory.load(self._place)
        value: Value = _values[self._memory]
        return value

    @property
    def released(self) -> bool:
        return not self._memory.exists()

    def release(self) -> None:
        if self._block is not None:
            _values.pop(self._memory, None)
            self._block.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalBroadcast, (self._memory, self._place)


def share(value: Value) -> LocalBroadcast[Value]:
    block = Block()
    try:
        place = block.store(value, "the value")
        block.flush()
    except BaseException:
        block.close()
        raise
    return LocalBroadcast(Memory.of(block.fd), place, block)


def forget_released() -> None:
    """Let go of values that their drivers have given back."""
    for memory in [memory for memory in _values if not memory.exists()]:
        del _values[memory]
