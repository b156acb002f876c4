"""How a fork is ordered: a length, and JSON of that length, with descriptors beside it."""

from __future__ import annotations

import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

CODE = struct.Struct("!i")
"""A process's number, and later its exit code."""
_SIZE = struct.Struct("!I")
_FDS_AT_MOST = 32


def surroundings() -> dict[str, Any]:
    """Folder and variables of this process, for an order that a fork have the same."""
    return {"folder": str(Path.cwd()), "environment": dict(os.environ)}


def send(nursery: socket.socket, order: dict[str, Any], fds: list[int]) -> None:
    body = json.dumps(order).encode()
    socket.send_fds(nursery, [_SIZE.pack(len(body))], fds)
    nursery.sendall(body)


def receive(source: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """An order and its descriptors; nothing from somebody who has gone."""
    try:
        head, fds, _, _ = socket.recv_fds(source, _SIZE.size, _FDS_AT_MOST)
        if not head:
            return None
        head += exactly(source, _SIZE.size - len(head))
        return json.loads(exactly(source, _SIZE.unpack(head)[0])), fds
    except (EOFError, OSError):
        return None


def exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        some = source.recv(size - len(data))
        if not some:
            raise EOFError
        data += some
    return bytes(data)
