"""Python objects in a block of memory that driver and workers share, so that big arrays exist once.

The block has no name in any file system: it is gone with the last process that holds it, however that ends.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from seamline.core import machine, pickling

_ALIGNMENT = 64
_SMALL = 64 * 1024
"""Arrays below this size travel inside the pickle."""

_LARGE = 16 * 2**20
"""Objects from this size on are mapped in any case."""

Place = tuple[int, int]
"""Offset and size in a block."""


class Block:
    """Memory behind a file descriptor; workers inherit the descriptor.

    Objects are stored first and written together by ``flush``, when it is known how large they are. The block may
    begin at ``base`` of what the descriptor shows, a multiple of the size of a page.
    """

    def __init__(self, fd: int | None = None, base: int = 0) -> None:
        self._fd = fd
        self._base = base
        self._end = 0
        self._unwritten: list[tuple[int, memoryview]] = []
        self._known: dict[tuple[int, int], Place] = {}

    @property
    def fd(self) -> int:
        if self._fd is None:
            self._fd = nameless(self._end)
        return self._fd

    def store(self, value: object, what: str) -> Place:
        """Take an object in; arrays that an earlier one brought are not kept again."""
        arrays: list[Place] = []

        def keep_inside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes < _SMALL:
                return True
            key = (int(np.frombuffer(raw, np.uint8).ctypes.data), raw.nbytes)
            if key not in self._known:
                self._known[key] = self._append(raw)
            arrays.append(self._known[key])
            return False

        body = pickling.dumps(value, what, on_buffer=keep_inside)
        table = json.dumps([self._append(memoryview(body)), *arrays])
        return self._append(memoryview(table.encode()))

    def load(self, place: Place) -> Any:
        """Read an object; its arrays are mapped, and private to this process when written to."""
        end = place[0] + place[1]  # an object's place is behind all that it is made of
        whole = memoryview(mmap.mmap(self.fd, end, access=mmap.ACCESS_COPY, offset=self._base))
        table: list[Place] = json.loads(bytes(_slice(whole, place)))
        body, *arrays = (_slice(whole, each) for each in table)
        return pickle.loads(body, buffers=arrays)

    def copy(self, place: Place) -> Any:
        """Read an object that needs no map: maps keep a descriptor open each, of which there are not many."""
        table: list[Place] = json.loads(self._read(place))
        if sum(size for _, size in table) >= _LARGE:
            return self.load(place)
        body, *arrays = map(self._read, table)
        return pickle.loads(body, buffers=arrays)

    def flush(self) -> None:
        for offset, data in self._unwritten:
            rest = data
            while rest:
                written = os.pwrite(self.fd, rest[: 1 << 30], self._base + offset)
                rest, offset = rest[written:], offset + written
        self._unwritten = []

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self, place: Place) -> bytearray:
        data = bytearray(place[1])
        os.preadv(self.fd, [data], self._base + place[0])
        return data

    def _append(self, data: memoryview) -> Place:
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._end = start + data.nbytes
        self._unwritten.append((start, data))
        return start, data.nbytes


def nameless(size: int) -> int:
    """Memory, or an unlinked file if ``size`` bytes would crowd the memory."""
    if hasattr(os, "memfd_create") and size < machine.available_memory_bytes() // 2:
        return os.memfd_create("seamline", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _slice(whole: memoryview, place: Sequence[int]) -> memoryview:
    return whole[place[0] : place[0] + place[1]]
