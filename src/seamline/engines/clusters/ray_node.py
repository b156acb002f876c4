"""One Ray node in a Spark executor: what runs there, for as long as the driver holds on to it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import random
import re
import select
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import ray

from seamline.core import machine
from seamline.core.errors import SeamlineError
from seamline.core.world import World
from seamline.engines.family import Family, lives
from seamline.engines.ray.cluster import SYSTEM, make_folder

UP_WITHIN_S = 90.0
LOOK_EVERY_S = 0.1
_SERVERS = ("raylet", "gcs_server")
_LOST = "the {} of a Ray node has ended or was killed"
_STORE_AT_MOST = 2 << 30
_PORTS = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Place:
    """What a node is told: where the driver holds it, its cores, and the secret of this Ray."""

    leash: tuple[str, int]
    cores: int
    token: str


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a node lives, and a port that is free there."""

    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def variables(token: str) -> dict[str, str]:
    """A Ray that other machines can reach answers only those who know its secret."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def host_node(world: World, place: Place) -> None:
    """Runs in each executor: a Ray node, until the driver lets go of it or it ends by itself.

    The node's processes are a family of their own: it ends with this process, whoever kills that.
    """
    host = _outside(world.host)
    folder = make_folder()
    with Family(folder, variables(place.token)) as family, socket.create_connection(place.leash) as leash:
        sites = world.all_gather(_Site(host, _free_port(host)))
        head = sites[0]
        options = _options(folder, host, place, neighbours=[site.host for site in sites].count(host))
        log = folder / "node.log"
        if world.rank == 0:
            ports = [f"--port={head.port}", f"--ray-client-server-port={_free_port(host)}"]
            role = ["--head", *ports, "--include-dashboard=false", f"--system-config={json.dumps(SYSTEM)}"]
            node = family.start([*_COMMAND, *role, *options], log)
            _await_answer(head, node, log)
        world.all_gather("the head is there")
        if world.rank == 0:
            world.report(head.address)
        else:
            node = family.start([*_COMMAND, f"--address={head.address}", *options], log)
        _watch(node, leash, log)


_COMMAND = (sys.executable, "-m", "ray.scripts.scripts", "start")


def _options(folder: Path, host: str, place: Place, neighbours: int) -> list[str]:
    """Ports are the system's choice: several nodes may share a machine, and Ray's usual ones belong to the first.

    Nor is the folder Ray's usual one, where any `ray.init()` on this machine would find this Ray and join it.
    """
    store = min(_STORE_AT_MOST, machine.available_memory_bytes() // (4 * neighbours))
    return [
        f"--temp-dir={folder}",
        f"--node-ip-address={host}",
        f"--num-cpus={place.cores}",
        f"--object-store-memory={store}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--dashboard-agent-listen-port={_free_port(host)}",
        f"--dashboard-agent-grpc-port={_free_port(host)}",
        f"--metrics-export-port={_free_port(host)}",
        "--disable-usage-stats",
        "--block",
    ]


def _await_answer(head: _Site, node: psutil.Process, log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline and lives(node):
        with contextlib.suppress(OSError):
            socket.create_connection((head.host, head.port), timeout=1).close()
            return
        time.sleep(LOOK_EVERY_S)
    raise SeamlineError(f"Ray's head did not start: {_last_words(log)}")


def _watch(node: psutil.Process, leash: socket.socket, log: Path) -> None:
    """Return when the driver lets go or is gone; raise when the node ends, or a server that it stands on."""
    servers: dict[str, psutil.Process] = {}
    while lives(node):
        servers = servers or _servers(node)
        for name, server in servers.items():
            if not lives(server):
                raise SeamlineError(_LOST.format(name))
        if select.select([leash], [], [], LOOK_EVERY_S)[0]:
            return
    last_words = _last_words(log)
    first_lost = re.search(r"END (\w+)\.out tail \(exit code", last_words)  # Ray saw it sooner, and ended the node
    raise SeamlineError(_LOST.format(first_lost[1]) if first_lost else f"a Ray node has ended by itself: {last_words}")


def _servers(node: psutil.Process) -> dict[str, psutil.Process]:
    """What nothing works without, once it is there; Ray itself takes a second to see that one of them has ended."""
    found = {}
    with contextlib.suppress(psutil.NoSuchProcess):
        found = {name: child for child in node.children() for name in _SERVERS if child.name().startswith(name)}
    return found if "raylet" in found else {}


def _last_words(log: Path) -> str:
    said = log.read_text("utf-8", "replace").split("\n")
    return " ".join(line.strip() for line in said if line.strip())[-500:] or "it does not say why"


def _outside(host: str) -> str:
    """The address that Ray's nodes call each other by: Ray does not let several of them meet on the loopback."""
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(host).is_loopback:
            return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
    return host


def _free_port(host: str) -> int:
    """A port below those that the system gives to callers: a call to one of them can meet itself and look answered."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with contextlib.suppress(OSError), socket.create_server((host, port)):
            return port
    raise SeamlineError(f"no port is free on {host} between {_PORTS.start} and {_PORTS.stop}")
