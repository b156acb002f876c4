"""Objects on their way between the driver and a lasting worker."""

from __future__ import annotations

import pickle
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seamline.core import pickling

_SMALL = 64 * 1024
"""Arrays below this size travel inside the pickle."""
_HEADER = struct.Struct("!?I")
"""Whether the worker failed, and the number of parts that follow."""


@dataclass(frozen=True, slots=True)
class Packet:
    """An object ready to travel: its pickle, then the large arrays that it holds."""

    parts: tuple[bytes | bytearray, ...]

    @classmethod
    def of(cls, value: object, what: str) -> Packet:
        """Pack a copy: what happens to ``value`` afterwards does not matter."""
        arrays: list[bytearray] = []

        def keep_inside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _SMALL:
                arrays.append(bytearray(raw))
            return raw.nbytes < _SMALL

        body = pickling.dumps(value, what, on_buffer=keep_inside)
        return cls((body, *arrays))

    def open(self) -> Any:
        return pickle.loads(self.parts[0], buffers=self.parts[1:])


def send(to: socket.socket, failed: bool, packet: Packet) -> None:
    sizes = struct.pack(f"!{len(packet.parts)}Q", *map(len, packet.parts))
    to.sendall(_HEADER.pack(failed, len(packet.parts)) + sizes)
    for part in packet.parts:
        to.sendall(part)


def receive(read: Callable[[int], bytearray]) -> tuple[bool, Packet]:
    failed, count = _HEADER.unpack(read(_HEADER.size))
    sizes = struct.unpack(f"!{count}Q", read(8 * count))
    return failed, Packet(tuple(read(size) for size in sizes))


def some(source: socket.socket, into: memoryview) -> int:
    """Read what there is, at least one byte."""
    count = source.recv_into(into)
    if count == 0:
        raise EOFError
    return count
