"""A Ray connection as a cluster: the one there is, one to an address, or one node started here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from seamline.core import registry
from seamline.core.cluster import Capacity
from seamline.core.engine import Engine
from seamline.core.errors import SeamlineError
from seamline.core.size import in_bytes
from seamline.engines.ray.cluster import Cluster


class RayCluster:
    """Workers as Ray actors; ``close`` undoes what was done to get the connection.

    ``check`` raises where this Ray has ended; it is called before and during each run. ``mend`` starts it again then,
    where it was started here.
    """

    remote = True

    def __init__(
        self,
        origin: str,
        undo: Sequence[Callable[[], object]] = (),
        check: Callable[[], None] | None = None,
        mend: Callable[[], None] | None = None,
    ) -> None:
        self._origin = origin
        self._undo = list(undo)
        self._check_alive = check or (lambda: None)
        self._start_again = mend or (lambda: None)
        self._engines: dict[int, Engine] = {}

    @property
    def description(self) -> str:
        where = f"at {ray.get_runtime_context().gcs_address}" if ray.is_initialized() else "that has ended"
        return f"Ray {ray.__version__} {where}, {self._origin}"

    @property
    def handles(self) -> Mapping[str, Any]:
        return {"ray": ray.get_runtime_context()}

    def engine(self, workers: int) -> Engine:
        """Workers are spread over the nodes and share their cores, but each reserves only one of them.

        So a run also starts where something small is running already.
        """
        if workers not in self._engines:
            capacity = self.capacity()
            threads = max(1, capacity.nodes * capacity.cores_per_node // workers)
            self._engines[workers] = registry.engine("ray", threads=threads, strategy="SPREAD", check=self._check_alive)
        return self._engines[workers]

    def capacity(self) -> Capacity:
        """By the CPUs that Ray counts, one for each worker."""
        self._check_alive()
        known: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        nodes = [node["Resources"] for node in known if node["Alive"] and node["Resources"].get("CPU")]
        cores = [int(resources["CPU"]) for resources in nodes]
        memory = [int(resources["memory"]) for resources in nodes if "memory" in resources]
        return Capacity(
            nodes=max(1, len(nodes)),
            slots=sum(cores),
            cores_per_node=min(cores, default=1),
            memory_bytes=min(memory, default=None),
            free=int(ray.available_resources().get("CPU", 0)),  # type: ignore[no-untyped-call]
        )

    def mend(self) -> None:
        self._start_again()

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        while self._engines:
            self._engines.popitem()[1].close()
        while self._undo:
            self._undo.pop()()


def open_ray(
    *,
    address: str | None = None,
    cores: int | None = None,
    memory: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> RayCluster:
    """The connection that this process has, or a new one to an address, or to a node of our own."""
    if ray.is_initialized():
        return RayCluster("started by this program")
    settings = {**({"_memory": in_bytes(memory)} if memory else {}), **(options or {})}
    connection = Cluster(address, cores, settings)
    try:
        connection.connect()
    except ConnectionError as error:
        raise SeamlineError(
            f"no Ray answers at {address}; start it there with `ray start --head`, or leave address= out"
        ) from error
    origin = "started here" if connection.ours else "connected here"
    return RayCluster(origin, [connection.close], connection.check_alive, connection.mend)
