"""Ray inside a Spark session: one Ray node in each executor, for as long as the session's owner wants it.

The nodes are the workers of an ordinary run of the Spark engine. So they start together, one that fails is named, and
all of them end with the job, the executor or the driver, whichever goes first.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from seamline.core import machine
from seamline.core.cluster import Cluster
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError, WorkerLostError
from seamline.engines.clusters import ray_node
from seamline.engines.clusters.ray import RayCluster
from seamline.engines.clusters.ray_node import LOOK_EVERY_S, UP_WITHIN_S, Place
from seamline.engines.clusters.spark import SparkCluster
from seamline.engines.ray.cluster import Cluster as RayConnection
from seamline.engines.spark.access import access_to

_DOWN_WITHIN_S = 15.0
_END_SHOWN_WITHIN_S = 8.0
"""How long after the loss of a worker it may take until it shows that its node, and all of Ray, went with it."""
_REPLACED_WITHIN_S = 30.0
"""How long Spark may take to start another executor before Ray goes on with those that there are."""


class RayOnSpark(RayCluster):
    """Ray's nodes in Spark's executors; Spark's other slots stay free for Spark's own jobs."""

    def __init__(self, spark: Cluster) -> None:
        super().__init__("inside Spark", [spark.close], self._check, self._restart)
        self._spark = spark
        self._executors = spark.capacity().nodes
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        token = secrets.token_hex(32)
        self._nodes = _Nodes(self._spark, token)
        self._connection = RayConnection(self._nodes.address, None, {})
        self._undo += [self._nodes.stop, _speak_with(token), self._connection.close]
        self._connection.connect()
        self._nodes.await_all()

    @property
    def description(self) -> str:
        return f"{super().description}: {self._spark.description}"

    @property
    def handles(self) -> Mapping[str, Any]:
        return {**self._spark.handles, **super().handles}

    def _restart(self) -> None:
        """If Ray has ended with one of its nodes, start it again in the executors, once Spark has replaced those.

        What lay in its store is lost.
        """
        if not self._nodes.end_within(_END_SHOWN_WITHIN_S):
            return
        while len(self._undo) > 1:  # Spark stays
            self._undo.pop()()
        deadline = time.monotonic() + _REPLACED_WITHIN_S
        while self._spark.capacity().nodes < self._executors and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        self._start()

    def _check(self) -> None:
        try:
            self._nodes.check()
        except SeamlineError as error:
            self._connection.close()  # Ray ends programs whose head does not answer for a minute
            raise WorkerLostError(None, str(error)) from None


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
        host, advertised = access_to(spark.handles["spark"]).addresses
        self._leash = socket.create_server((host, 0), backlog=self._count)
        leash = advertised, int(self._leash.getsockname()[1])
        self._held: list[socket.socket] = []
        threading.Thread(target=self._hold, daemon=True, name="ray-on-spark-leash").start()
        shards = [Place(leash, capacity.cores_per_node, token)] * self._count
        self._thread = threading.Thread(
            target=self._run, args=(spark.engine(self._count), shards), daemon=True, name="ray-on-spark"
        )
        self._thread.start()
        try:
            self.address = self._await_head()
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raise if a node, its executor or the job has ended, and Ray with it."""
        if not self._thread.is_alive():
            cause = self._failure and (self._failure.__cause__ or self._failure)
            why = str(cause).strip().splitlines()[-1] if cause else "its Spark job is over"
            raise SeamlineError(
                f"Ray on Spark has ended ({why});\ncall stop_orca_context() and init_orca_context(...) again"
            ) from self._failure

    def end_within(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def await_all(self) -> None:
        """Return when every executor's node has joined."""
        deadline = time.monotonic() + UP_WITHIN_S
        while (there := sum(node["Alive"] for node in ray.nodes())) < self._count:  # type: ignore[no-untyped-call]
            self.check()
            if time.monotonic() > deadline:
                raise SeamlineError(
                    f"{there} of {self._count} Ray nodes have joined after {UP_WITHIN_S:g} s; "
                    "open the ports between the executors to each other"
                )
            time.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        """Let go of the nodes: each ends its Ray and then its Spark task."""
        with contextlib.suppress(OSError):
            self._leash.shutdown(socket.SHUT_RDWR)
        self._leash.close()
        for held in self._held:
            held.close()
        self._thread.join(_DOWN_WITHIN_S)

    def _await_head(self) -> str:
        deadline = time.monotonic() + UP_WITHIN_S
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._addresses.get(timeout=LOOK_EVERY_S)
            self.check()
        raise SeamlineError(f"Ray's head did not start in an executor within {UP_WITHIN_S:g} s")

    def _hold(self) -> None:
        with contextlib.suppress(OSError):  # the leash was dropped
            while True:
                self._held.append(self._leash.accept()[0])

    def _run(self, engine: Engine, shards: list[Place]) -> None:
        try:
            engine.run(ray_node.host_node, shards, listen=lambda _, address: self._addresses.put(str(address)))
        except Exception as error:  # told to whoever uses the cluster next
            self._failure = error


def _speak_with(token: str) -> Callable[[], None]:
    """Let this process speak to the Ray with this secret; what comes back undoes it."""
    stack = contextlib.ExitStack()
    stack.callback(_read_settings)
    stack.enter_context(machine.variables_set(ray_node.variables(token)))
    _read_settings()
    return stack.close


def _read_settings() -> None:
    """Ray has read its environment when it was imported; this is how it does so again."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()
