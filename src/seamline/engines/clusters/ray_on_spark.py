"""Ray inside a Spark session: one Ray node in each executor, for as long as the session's owner wants it.

The nodes are the workers of an ordinary run of the Spark engine. So they start together, one that fails is named, and
all of them end with the job, the executor or the driver, whichever goes first.
"""

from __future__ import annotations

import contextlib
import ctypes
import ipaddress
import os
import queue
import random
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from seamline.core import machine
from seamline.core.cluster import Cluster
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError
from seamline.core.world import World
from seamline.engines.clusters.ray import RayCluster
from seamline.engines.clusters.spark import SparkCluster
from seamline.engines.ray.cluster import Cluster as RayConnection
from seamline.engines.spark import slots

_UP_WITHIN_S = 90.0
_DOWN_WITHIN_S = 15.0
_LOOK_EVERY_S = 0.2
_STORE_AT_MOST = 2 << 30
_PORTS = range(20_000, 32_000)
_PR_SET_PDEATHSIG = 1


class RayOnSpark(RayCluster):
    """Ray's nodes in Spark's executors; Spark's other slots stay free for Spark's own jobs."""

    def __init__(self, spark: Cluster) -> None:
        super().__init__("inside Spark")
        self._spark = spark
        token = secrets.token_hex(32)
        self._nodes = _Nodes(spark, token)
        self._undo = [spark.close, self._nodes.stop, _use_token(token)]
        try:
            connection = RayConnection(self._nodes.address, None, {})
            connection.connect()
            self._undo.append(connection.close)
            self._nodes.await_all()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        return f"{super().description}: {self._spark.description}"

    @property
    def handles(self) -> Mapping[str, Any]:
        return {**self._spark.handles, **super().handles}

    def engine(self, workers: int) -> Engine:
        self._nodes.check()
        return super().engine(workers)


def open_ray_on_spark(*, spark: Cluster) -> RayOnSpark:
    """Start Ray in the executors of a Spark cluster; both are closed together."""
    if not isinstance(spark, SparkCluster):
        raise ValueError("Ray on Spark needs a Spark session; use it with spark, standalone, a yarn or a k8s mode")
    if ray.is_initialized():
        raise SeamlineError("this program is connected to a Ray already; call ray.shutdown() first")
    return RayOnSpark(spark)


class _Nodes:
    """The run whose workers are Ray's nodes, in a thread of its own."""

    def __init__(self, spark: Cluster, token: str) -> None:
        capacity = spark.capacity()
        self._count = capacity.nodes
        self._failure: Exception | None = None
        self._addresses: queue.Queue[str] = queue.Queue()
        host, advertised = slots.addresses(spark.handles["spark"].sparkContext)
        self._leash = socket.create_server((host, 0), backlog=self._count)
        leash = advertised, int(self._leash.getsockname()[1])
        self._held: list[socket.socket] = []
        threading.Thread(target=self._hold, daemon=True, name="ray-on-spark-leash").start()
        shards = [Place(leash, capacity.cores_per_node, token)] * self._count
        self._thread = threading.Thread(
            target=self._run, args=(spark.engine(self._count), shards), daemon=True, name="ray-on-spark"
        )
        self._thread.start()
        self.address = self._await_head()

    def check(self) -> None:
        """Raise if a node, its executor or the job has ended, and Ray with it."""
        if not self._thread.is_alive():
            why = str(self._failure).strip().splitlines() if self._failure else ["its Spark job is over"]
            raise SeamlineError(
                f"Ray on Spark has ended ({why[-1]}); call stop_orca_context() and init_orca_context(...) again"
            ) from self._failure

    def await_all(self) -> None:
        """Return when every executor's node has joined."""
        deadline = time.monotonic() + _UP_WITHIN_S
        while (there := sum(node["Alive"] for node in ray.nodes())) < self._count:  # type: ignore[no-untyped-call]
            self.check()
            if time.monotonic() > deadline:
                raise SeamlineError(
                    f"{there} of {self._count} Ray nodes have joined after {_UP_WITHIN_S:g} s; "
                    "open the ports between the executors to each other"
                )
            time.sleep(_LOOK_EVERY_S)

    def stop(self) -> None:
        """Let go of the nodes: each ends its Ray and then its Spark task."""
        with contextlib.suppress(OSError):
            self._leash.shutdown(socket.SHUT_RDWR)
        self._leash.close()
        for held in self._held:
            held.close()
        self._thread.join(_DOWN_WITHIN_S)

    def _await_head(self) -> str:
        deadline = time.monotonic() + _UP_WITHIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._addresses.get(timeout=_LOOK_EVERY_S)
            if not self._thread.is_alive():
                self.stop()
                self.check()
        self.stop()
        raise SeamlineError(f"Ray's head did not start in an executor within {_UP_WITHIN_S:g} s")

    def _hold(self) -> None:
        with contextlib.suppress(OSError):  # the leash was dropped
            while True:
                self._held.append(self._leash.accept()[0])

    def _run(self, engine: Engine, shards: list[Place]) -> None:
        try:
            engine.run(host_node, shards, listen=lambda _, address: self._addresses.put(str(address)))
        except Exception as error:  # told to whoever uses the cluster next
            self._failure = error


@dataclass(frozen=True, slots=True)
class Place:
    """What a node is told: where the driver holds it, its cores, and the secret of this Ray."""

    leash: tuple[str, int]
    cores: int
    token: str


def host_node(world: World, place: Place) -> None:
    """Runs in each executor: a Ray node, until the driver lets go of it or it ends by itself."""
    host = _outside(world.host)
    head = world.all_gather(f"{host}:{_free_port(host)}")[0]
    neighbours = world.all_gather(host).count(host)
    with socket.create_connection(place.leash) as leash, _folder() as folder:
        if world.rank == 0:
            ports = [f"--port={head.rpartition(':')[2]}", f"--ray-client-server-port={_free_port(host)}"]
            # Not in Ray's usual folder, where any `ray.init()` on this machine would find and join it.
            options = [*ports, f"--temp-dir={folder}", "--include-dashboard=false"]
            node = _start(["--head", *options], host, place, neighbours)
            _await_answer(head, node)
        world.all_gather("the head is there")
        if world.rank != 0:
            node = _start([f"--address={head}"], host, place, neighbours)
        else:
            world.report(head)
        try:
            _watch(node, leash)
        finally:
            _end(node)


def _start(role: list[str], host: str, place: Place, neighbours: int) -> subprocess.Popen[bytes]:
    """Ports are the system's choice: several nodes may share a machine, and Ray's usual ones belong to the first."""
    store = min(_STORE_AT_MOST, machine.available_memory_bytes() // (4 * neighbours))
    words = [
        *role,
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
    return subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", "start", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **_variables(place.token)},
        preexec_fn=_die_with_parent,
    )


def _variables(token: str) -> dict[str, str]:
    """A Ray that other machines can reach answers only those who know its secret."""
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}


def _use_token(token: str) -> Callable[[], None]:
    """Let this process speak to the Ray with this secret; what comes back undoes it."""
    ours = _variables(token)
    before = {name: os.environ.get(name) for name in ours}

    def put_back() -> None:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _read_settings()

    os.environ.update(ours)
    _read_settings()
    return put_back


def _read_settings() -> None:
    """Ray has read its environment when it was imported; this is how it does so again."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _await_answer(address: str, node: subprocess.Popen[bytes]) -> None:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < deadline and node.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        time.sleep(_LOOK_EVERY_S)
    _end(node)
    raise SeamlineError(f"Ray's head did not start: {_last_words(node)}")


def _watch(node: subprocess.Popen[bytes], leash: socket.socket) -> None:
    while node.poll() is None:
        if select.select([leash], [], [], _LOOK_EVERY_S)[0]:
            return  # the driver has let go, or is gone
    raise SeamlineError(f"a Ray node has ended by itself: {_last_words(node)}")


def _end(node: subprocess.Popen[bytes]) -> None:
    if node.poll() is None:
        node.terminate()
        try:
            node.wait(_DOWN_WITHIN_S / 2)
        except subprocess.TimeoutExpired:
            node.kill()
            node.wait()


def _last_words(node: subprocess.Popen[bytes]) -> str:
    said = node.stdout.read().decode("utf-8", "replace").strip().splitlines() if node.stdout else []
    return " ".join(said[-3:]) or f"exit code {node.returncode}"


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A short name, because Ray puts sockets there; the last words of its processes may still be on their way."""
    return tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)


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
