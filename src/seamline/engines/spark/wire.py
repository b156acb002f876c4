"""One authenticated connection between the driver and a process that works for it."""

from __future__ import annotations

import contextlib
import enum
import hmac
import secrets
import socket
import struct
import threading

from seamline.core import packet
from seamline.core.packet import Packet

_INTRODUCTION = struct.Struct("!BI")
_NONCE = 32
_DIGEST = 32
_WELCOME = b"+"
_HANDSHAKE_WITHIN_S = 20.0


class Role(enum.IntEnum):
    """Who calls."""

    KEEPER = 1  # the Spark task of a worker: watches its process
    WORKER = 2  # the process of a worker: runs the task
    TASK = 3  # a task that never meets others
    READER = 4  # whoever wants a value that the driver holds, and nothing else


class Kind(enum.IntEnum):
    """What a message is. The driver sends the first four."""

    WORK = 1  # the task, then the shard
    ALL = 2  # one worker's part of what was gathered; one message for each rank
    LOST = 3  # nothing can be gathered any more, and why
    STOP = 4  # end the worker: at once, or when it had the time to notice
    GATHER = 5
    REPORT = 6
    DONE = 7
    FAILED = 8
    LINE = 9
    EXITED = 10


class Wire:
    """Messages in both directions; several threads may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._sending = threading.Lock()
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_dead_machines(connection)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def host(self) -> str:
        """The address of this end."""
        return str(self._socket.getsockname()[0])

    def send(self, kind: Kind, message: Packet) -> None:
        with self._sending:
            packet.send(self._socket, kind, message)

    def send_if_open(self, kind: Kind, message: Packet) -> None:
        """Send to a peer that may have gone, which is found out elsewhere."""
        with contextlib.suppress(OSError):
            self.send(kind, message)

    def receive(self) -> tuple[Kind, Packet]:
        """The next message; ``EOFError`` or ``OSError`` when there is none."""
        kind, message = packet.receive(lambda size: _read(self._socket, size))
        return Kind(kind), message

    def welcome(self) -> None:
        """Let a caller in; one that is not is hung up on."""
        self._socket.sendall(_WELCOME)

    def forget(self) -> None:
        """Leave the connection to another process that has its descriptor."""
        self._socket.close()

    def close(self) -> None:
        """Both ends notice, whoever holds copies of the descriptor."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def call(address: tuple[str, int], token: bytes, role: Role, number: int) -> Wire:
    """Connect to the driver; ``OSError`` or ``EOFError`` where it is gone or does not want this caller."""
    connection = socket.create_connection(address, _HANDSHAKE_WITHIN_S)
    try:
        challenge = bytes(_read(connection, _NONCE))
        ours = secrets.token_bytes(_NONCE)
        introduction = _INTRODUCTION.pack(role, number)
        connection.sendall(introduction + ours + _proof(token, b"worker", challenge, ours, introduction))
        if not hmac.compare_digest(_read(connection, _DIGEST), _proof(token, b"driver", ours, challenge)):
            raise ConnectionRefusedError("whoever answers at the driver's address is not the driver")
        _read(connection, len(_WELCOME))
        return Wire(connection)
    except BaseException:
        connection.close()
        raise


def read(address: tuple[str, int], token: bytes, number: int) -> list[Packet]:
    """What the driver holds under a number; ``OSError`` or ``EOFError`` where it is gone or holds no such thing."""
    driver = call(address, token, Role.READER, number)
    try:
        (count,) = driver.receive()[1].open()
        return [driver.receive()[1] for _ in range(count)]
    finally:
        driver.close()


def admit(connection: socket.socket, token: bytes) -> tuple[Role, int]:
    """Who calls; ``ConnectionRefusedError`` where the caller does not know the token."""
    connection.settimeout(_HANDSHAKE_WITHIN_S)
    challenge = secrets.token_bytes(_NONCE)
    connection.sendall(challenge)
    introduction = bytes(_read(connection, _INTRODUCTION.size))
    theirs = bytes(_read(connection, _NONCE))
    if not hmac.compare_digest(_read(connection, _DIGEST), _proof(token, b"worker", challenge, theirs, introduction)):
        raise ConnectionRefusedError("the caller does not know the token")
    role, number = _INTRODUCTION.unpack(introduction)
    connection.sendall(_proof(token, b"driver", theirs, challenge))
    return Role(role), number


def _proof(token: bytes, *parts: bytes) -> bytes:
    return hmac.digest(token, b"".join(parts), "sha256")


def _read(source: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        rest = rest[packet.some(source, rest) :]
    return data


def _notice_dead_machines(connection: socket.socket) -> None:
    """A machine that loses power never says goodbye; ask it every few seconds."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
