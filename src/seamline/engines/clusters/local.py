"""This machine as a cluster of one node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seamline.core import machine, registry
from seamline.core.cluster import Capacity
from seamline.core.engine import Engine


class LocalCluster:
    """One worker in this process, several in processes of their own.

    With ``cores`` the workers share that many, and a single one gets a process of its own, because this process may
    have started its threads already.
    """

    remote = False

    def __init__(self, *, cores: int | None = None) -> None:
        self._cores = cores
        self._engines: dict[tuple[str, int | None], Engine] = {}

    @property
    def description(self) -> str:
        return "this machine"

    @property
    def handles(self) -> Mapping[str, Any]:
        return {}

    def engine(self, workers: int) -> Engine:
        threads = max(1, self._cores // workers) if self._cores else None
        name = "inline" if workers == 1 and threads is None else "local"
        if (name, threads) not in self._engines:
            options = {} if threads is None else {"threads": threads}
            self._engines[name, threads] = registry.engine(name, **options)
        return self._engines[name, threads]

    def capacity(self) -> Capacity:
        cores = self._cores or machine.cores().count
        return Capacity(nodes=1, slots=cores, cores_per_node=cores, memory_bytes=machine.memory_bytes())

    def mend(self) -> None:
        """A machine that is lost takes the driver with it."""

    def warnings(self) -> list[str]:
        return []

    def close(self) -> None:
        while self._engines:
            self._engines.popitem()[1].close()
