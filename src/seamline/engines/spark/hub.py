"""Where the processes of a run reach the driver: one listening socket, and everything they say in one queue."""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from seamline.core.errors import SeamlineError
from seamline.core.packet import Packet
from seamline.engines.spark.wire import Kind, Role, Wire, admit

_UNREAD = 1000
"""So many messages wait for the driver; whoever talks faster than that is slowed down."""


class Message(NamedTuple):
    """What a process said; ``kind`` is ``None`` when its connection has ended."""

    role: Role
    number: int
    kind: Kind | None
    body: Packet
    wire: Wire


Welcome = Callable[[Role, int, Wire], Sequence[Packet] | None]
"""Called for each caller that knows the token: the work to give it, or ``None`` where it may not come in."""


class Hub:
    """Listens on the driver's address alone, for those who know a token that was made for this run."""

    def __init__(self, host: str, welcome: Welcome, *, advertised: str | None = None) -> None:
        self.token = secrets.token_bytes(32)
        self.inbox: queue.Queue[Message] = queue.Queue(_UNREAD)
        self._welcome = welcome
        self._wires: set[Wire] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._listener = _listen(host)
        self.address = (advertised or host, int(self._listener.getsockname()[1]))
        threading.Thread(target=self._accept, daemon=True, name="seamline-hub").start()

    def close(self) -> None:
        """Hang up on everyone; those who call later are not answered."""
        with self._lock:
            self._closed = True
            wires = list(self._wires)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for wire in wires:
            wire.close()
        with contextlib.suppress(queue.Empty):
            while True:  # let go of those who wait for room in the queue
                self.inbox.get_nowait()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the hub was closed
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._attend, args=(caller,), daemon=True, name="seamline-hub").start()

    def _attend(self, caller: socket.socket) -> None:
        try:
            role, number = admit(caller, self.token)
        except (OSError, EOFError, ValueError):  # a stranger
            caller.close()
            return
        wire = Wire(caller)
        with self._lock:
            if self._closed:
                wire.close()
                return
            self._wires.add(wire)
        try:
            work = self._welcome(role, number, wire)
            if work is not None:
                self._serve(role, number, wire, work)
        finally:
            with self._lock:
                self._wires.discard(wire)
            wire.close()

    def _serve(self, role: Role, number: int, wire: Wire, work: Sequence[Packet]) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError):
            wire.welcome()
            if role is Role.READER:
                wire.send(Kind.WORK, Packet.of((len(work),), "the number of packets"))
            for packet in work:
                wire.send(Kind.WORK, packet)
            while role is not Role.READER:
                self._put(Message(role, number, *wire.receive(), wire))
        if role is not Role.READER:  # one who reads has nothing to say
            self._put(Message(role, number, None, Packet(()), wire))

    def _put(self, message: Message) -> None:
        while not self._closed:
            with contextlib.suppress(queue.Full):
                self.inbox.put(message, timeout=1)
                return


def _listen(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0), backlog=1024)
    except OSError as error:
        raise SeamlineError(
            f"the driver cannot listen on {host}, where Spark's executors look for it; "
            "set spark.driver.host or spark.driver.bindAddress to an address of this machine"
        ) from error
