"""The engine that runs workers and tasks on Ray."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from seamline.core import machine
from seamline.core.collection import Collection
from seamline.core.engine import Block, Item, Listener, Replace, Result, Shard, Value
from seamline.core.world import World
from seamline.engines.ray.broadcast import RayBroadcast, share
from seamline.engines.ray.cluster import Cluster
from seamline.engines.ray.collection import RayCollection, adopted, native
from seamline.engines.ray.gang import Gang, Room
from seamline.engines.ray.parcel import Parcel, stored
from seamline.engines.ray.tasks import Tasks

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]

_START_WITHIN_S = 10.0
_EXCHANGE_RETRIES = 2


class RayEngine:
    """Run each worker as an actor that reserves ``cpus_per_worker``, all placed before any starts.

    A program that is connected to Ray keeps its connection. Otherwise the engine connects to ``address`` (or to what
    ``RAY_ADDRESS`` names), and without one starts a Ray on this machine that only this machine can reach, with
    ``cores`` CPUs; ``options`` go to ``ray.init``. ``close`` ends only what the engine began.

    ``threads`` is the number of compute threads of each worker: by default the cores divided by the workers on a Ray of
    our own, and on any other what the worker has reserved. If the cluster has the CPUs but others use them, a
    run waits ``start_within_s`` seconds for them. After ``timeout_s`` seconds it is stopped with ``RunTimeoutError``.
    ``check`` is called again and again while something runs, and raises where the Ray of somebody else has ended.
    """

    name = "ray"

    def __init__(
        self,
        address: str | None = None,
        *,
        cores: int | None = None,
        cpus_per_worker: float = 1,
        threads: int | None = None,
        strategy: Strategy = "PACK",
        start_within_s: float = _START_WITHIN_S,
        timeout_s: float | None = None,
        check: Callable[[], None] | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._cluster = Cluster(address, cores, options, check)
        self._cpus = cpus_per_worker
        self._threads = threads
        self._strategy = strategy
        self._start_within_s = start_within_s
        self._timeout_s = timeout_s
        self._broadcasts: list[RayBroadcast[Any]] = []

    def run(
        self,
        task: Callable[[World, Shard], Result],
        shards: Sequence[Shard],
        *,
        listen: Listener | None = None,
        replace: Replace | None = None,
    ) -> list[Result]:
        size = len(shards)
        parcels = [Parcel.of(task, "the task")]
        parcels += [Parcel.of(shard, f"shard {rank}") for rank, shard in enumerate(shards)]
        self._cluster.connect()
        self._cluster.check_room(size, self._cpus)
        gang = Gang(size, self._room(size), self._cluster)
        try:
            work, *each = stored(parcels)
            gang.start(work, each)
            return gang.serve(listen, replace, self._timeout_s)
        finally:
            gang.stop()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], *, retries: int = 2) -> list[Result]:
        return self._tasks(retries).map(function, items)

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        return self._tasks(_EXCHANGE_RETRIES).exchange(produce, items, consume)

    def broadcast(self, value: Value) -> RayBroadcast[Value]:
        self._cluster.connect()
        handle = share(value)
        self._broadcasts = [*(each for each in self._broadcasts if not each.released), handle]
        return handle

    def collection(self, items: Sequence[Any]) -> RayCollection:
        self._cluster.connect()
        return RayCollection.of(items, self._cluster.check_alive)

    def adopt(self, table: Any) -> RayCollection:
        """The blocks of a Ray Dataset as Arrow tables."""
        self._cluster.connect()
        return adopted(table, self._cluster.check_alive)

    def native(self, tables: Collection, schema: Any) -> Any:
        """A Ray Dataset."""
        self._cluster.connect()
        return native(tables, schema, self._cluster.check_alive)

    def close(self) -> None:
        for handle in self._broadcasts:
            handle.release()
        self._cluster.close()

    def _tasks(self, retries: int) -> Tasks:
        self._cluster.connect()
        return Tasks(retries, self._cluster)

    def _room(self, size: int) -> Room:
        share_of_each = machine.cores().threads(size) if self._cluster.ours else max(1, int(self._cpus))
        variables = machine.worker_variables(self._threads or share_of_each)
        return Room(self._cpus, self._strategy, variables, self._start_within_s)
