"""How workers that hold torch models find each other and talk."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

import psutil
import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # missing from its stubs
from torch.distributed.distributed_c10d import _set_pg_timeout, _world

from seamline.core.clock import Clock, gathered, reduced
from seamline.core.errors import PeerLostError
from seamline.core.world import World

T = TypeVar("T")

_MEET_WITHIN = timedelta(seconds=120)
_FORM_WITHIN = timedelta(seconds=30)
"""How long those who have met may take to connect to each other; one of them may be lost meanwhile."""
_FOR_EVER = timedelta(days=365)
_left: list[Any] = []
"""The group of the run before. Its end waits for its threads, with Python's lock if a DistributedDataParallel was the
last to know it, and they may need that lock to let go of their last tensors: it ends when those are long gone."""
_broken: list[Any] = []
"""Groups that lost a member: their threads may wait for ever, so they never end."""
_GLOO = "/gloo/transport/"
"""The file that gloo names when a connection ends."""
_NOT_FORMED = re.compile("timed? ?out|connect", re.IGNORECASE)
"""What is said when a connection does not come about."""


@dataclass(frozen=True, slots=True)
class TorchWorld:
    """A world whose members talk through ``torch.distributed``, each on its device."""

    outer: World
    device: torch.device
    clock: Clock = field(default_factory=Clock, compare=False, repr=False)
    """Told of every wait for peers."""

    @property
    def rank(self) -> int:
        return self.outer.rank

    @property
    def size(self) -> int:
        return self.outer.size

    @property
    def host(self) -> str:
        return self.outer.host

    def all_gather(self, value: T) -> list[T]:
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with self.clock.communicating(gathered(len(pickle.dumps(value)), self.size)):
            dist.all_gather_object(values, value)
        return values

    def share(self, value: T, source: int) -> T:
        """One worker's value on every worker."""
        held: list[Any] = [value]
        dist.broadcast_object_list(held, source)
        return cast("T", held[0])

    def report(self, message: object) -> None:
        self.outer.report(message)

    @property
    def generation(self) -> int:
        return self.outer.generation

    def renew(self) -> None:
        self.outer.renew()

    def sum(self, number: float) -> float:
        """The sum of one number over all workers, faster than gathering."""
        if self.size == 1:
            return number
        total = torch.tensor(number, dtype=torch.float64)
        with self.clock.communicating(reduced(total.nbytes, self.size)):
            dist.all_reduce(total)
        return float(total)


@contextlib.contextmanager
def join(world: World, device: str, patience_s: float | None = None) -> Iterator[TorchWorld]:
    """Connect the workers; a peer that is lost while they meet or talk becomes ``PeerLostError``.

    So does one that lets the others wait for longer than ``patience_s``.
    """
    ours = TorchWorld(world, choose_device(world, device))
    if world.size == 1:
        yield ours
        return
    backend = "gloo" if ours.device.type == "cpu" else "cpu:gloo,cuda:nccl"
    _left.clear()
    to_peers: set[int] = set()
    try:
        to_peers = _form_group(world, backend, _FOR_EVER if patience_s is None else timedelta(seconds=patience_s))
        yield ours
        _left.append(dist.group.WORLD)
    except BaseException as error:
        _hang_up(to_peers)
        if dist.is_initialized():
            _broken.append(dist.group.WORLD)
        if isinstance(error, RuntimeError) and (_GLOO in str(error) or isinstance(error, dist.DistError)):
            raise PeerLostError(f"worker {world.rank} lost a peer: {error}") from error
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _form_group(world: World, backend: str, patience: timedelta) -> set[int]:
    """Make the process group that torch knows; returns the connections to peers."""
    store = _meet(world)
    before = _connections()
    try:
        with _interface_of(world.host):
            dist.init_process_group(backend, store=store, rank=world.rank, world_size=world.size, timeout=_FORM_WITHIN)
    except BaseException as error:
        _hang_up(_connections() - before)
        _world.group_count = 0  # else the next group would have another name than with those who are new
        if isinstance(error, RuntimeError) and _NOT_FORMED.search(str(error)):
            raise PeerLostError(f"worker {world.rank} could not connect to its peers: {error}") from error
        raise
    _set_pg_timeout(patience)
    return _connections() - before


def _connections() -> set[int]:
    known = psutil.Process().net_connections("tcp")
    return {connection.fd for connection in known if connection.status == psutil.CONN_ESTABLISHED}


def _hang_up(descriptors: set[int]) -> None:
    """Let peers that wait for this worker hear that it is gone."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as connection:
            connection.shutdown(socket.SHUT_RDWR)


def choose_device(world: World, wish: str) -> torch.device:
    """The device of this worker: a GPU of its own where every worker can have one, else the CPU."""
    count = torch.cuda.device_count() if wish != "cpu" and torch.cuda.is_available() else 0
    peers = world.all_gather((world.host, count))
    place = sum(host == world.host for host, _ in peers[: world.rank])
    enough = all(gpus > sum(host == other for other, _ in peers[:rank]) for rank, (host, gpus) in enumerate(peers))
    if wish == "cuda" and not enough:
        raise ValueError(f"device='cuda' needs a GPU for each of {world.size} workers, but there are {count}")
    return torch.device("cuda", place) if enough else torch.device("cpu")


def _meet(world: World) -> TCPStore:
    """A store on the first worker, on the address in use alone and on a port that the system picks.

    The others learn the port by ``all_gather``, so no port is chosen first and lost before it is bound.
    """
    if world.rank == 0:
        listener = socket.create_server((world.host, 0))
        port = listener.getsockname()[1]
        store = TCPStore(world.host, port, world.size, True, _MEET_WITHIN, False, master_listen_fd=listener.detach())
        world.all_gather((world.host, port))
        return store
    host, port = world.all_gather(("", 0))[0]
    store = TCPStore(host, port, world.size, False, _FORM_WITHIN)  # it is there, unless its worker was lost since
    store.set_timeout(_MEET_WITHIN)
    return store


@contextlib.contextmanager
def _interface_of(host: str) -> Iterator[None]:
    """Let gloo use the network interface that has this address, unless the user has named one."""
    variable = "GLOO_SOCKET_IFNAME"
    found = next((n for n, many in psutil.net_if_addrs().items() if any(a.address == host for a in many)), None)
    if found is None or variable in os.environ:
        yield
        return
    os.environ[variable] = found
    try:
        yield
    finally:
        del os.environ[variable]
