"""Objects on their way between the driver and a worker."""

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
_HEADER = struct.Struct("!BI")
"""What kind of message it is, in the words of those who talk, and the number of parts that follow."""


Part = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Packet:
    """An object ready to travel: its pickle, then the large arrays that it holds."""

    parts: tuple[Part, ...]

    @classmethod
    def of(cls, value: object, what: str, *, copy: bool = True) -> Packet:
        """Pack a copy: what happens to ``value`` afterwards does not matter. Without one it must not change."""
        arrays: list[Part] = []

        def keep_inside(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if raw.nbytes >= _SMALL:
                arrays.append(bytearray(raw) if copy else raw)
            return raw.nbytes < _SMALL

        body = pickling.dumps(value, what, on_buffer=keep_inside)
        return cls((body, *arrays))

    def open(self) -> Any:
        return pickle.loads(self.parts[0], buffers=self.parts[1:])


def send(to: socket.socket, kind: int, packet: Packet) -> None:
    sizes = struct.pack(f"!{len(packet.parts)}Q", *(memoryview(part).nbytes for part in packet.parts))
    to.sendall(_HEADER.pack(kind, len(packet.parts)) + sizes)
    for part in packet.parts:
        to.sendall(part)


def receive(read: Callable[[int], bytearray]) -> tuple[int, Packet]:
    kind, count = _HEADER.unpack(read(_HEADER.size))
    sizes = struct.unpack(f"!{count}Q", read(8 * count))
    return kind, Packet(tuple(read(size) for size in sizes))


def some(source: socket.socket, into: memoryview) -> int:
    """Read what there is, at least one byte."""
    count = source.recv_into(into)
    if count == 0:
        raise EOFError
    return count
