"""The driver's side of one run: start the workers together, listen, and bring back results or the first failure."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import Any

import cloudpickle
import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from seamline.core.engine import Listener, Replace
from seamline.core.errors import RunTimeoutError, WorkerError, WorkerLostError
from seamline.engines.ray import forks
from seamline.engines.ray.broadcast import Known
from seamline.engines.ray.cluster import Cluster, TooFewCpusError
from seamline.engines.ray.meeting import Meeting
from seamline.engines.ray.outcome import Outcome, arrived
from seamline.engines.ray.parcel import Parcel
from seamline.engines.ray.worker import Worker

_LOOK_EVERY_S = 0.5
_CAUSE_WITHIN_S = 2.0
"""How long to wait for the cause once a worker has reported what can only be a consequence."""
_REPLACED_WITHIN_S = 5.0
"""How long another process may take to be there, where room for it is."""
_LEAVE_WITHIN_S = 1.0
"""How long a worker that waits for a peer may take to end by itself before it is killed."""


@dataclass(frozen=True, slots=True)
class Room:
    """What each worker gets of the cluster."""

    cpus: float
    strategy: str
    variables: dict[str, str]
    within_s: float


class Gang:
    """All workers of one run."""

    def __init__(self, size: int, room: Room, cluster: Cluster) -> None:
        self._size = size
        self._room = room
        self._cluster = cluster
        self._group: PlacementGroup | None = None
        self._meeting: Any = None
        self._workers: list[Any] = []
        self._work: tuple[Any, list[Parcel]] | None = None
        self._running: dict[Any, int] = {}
        self._env: dict[str, Any] = {}

    def start(self, task: Parcel, shards: list[Parcel]) -> None:
        """Take room for all before starting any, so that no two gangs wait for each other with half their workers."""
        group = placement_group([{"CPU": self._room.cpus}] * self._size, strategy=self._room.strategy)
        self._group = group
        if not group.wait(self._room.within_s):
            raise TooFewCpusError.asking(self._size, self._room.cpus)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        self._env = forks.runtime_env(self._room.variables)
        self._meeting = (
            ray.remote(Meeting)
            .options(
                num_cpus=0,
                max_concurrency=10 * self._size + 10,
                scheduling_strategy=here,
                runtime_env=self._env,
            )
            .remote(self._size)
        )
        self._work = ray.put(task), shards
        for rank in range(self._size):
            self._workers.append(self._actor(rank, group))
            self._run(rank, 0)

    def _run(self, rank: int, generation: int) -> None:
        assert self._work is not None
        task, shards = self._work
        self._running[self._workers[rank].run.remote(Known.now(), task, shards[rank], generation)] = rank

    def _actor(self, rank: int, group: PlacementGroup) -> Any:
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        options = {
            "num_cpus": self._room.cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "scheduling_strategy": place,
            # Variables of its own make Ray start a fresh process: thread pools read them when they are loaded.
            "runtime_env": {"env_vars": self._room.variables, **self._env},
        }
        return ray.remote(Worker).options(**options).remote(rank, self._size, self._meeting, sys.path)

    def serve(self, listen: Listener | None, replace: Replace | None, timeout_s: float | None) -> list[Any]:
        """Listen to the workers until each is done; raise as soon as it is known which one failed."""
        end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        consequence: WorkerError | None = None
        deadline = float("inf")
        results: dict[int, Parcel] = {}
        news = self._meeting.reports.remote()
        while self._running:
            self._cluster.check_alive()
            ready = arrived([*self._running, news], min(_LOOK_EVERY_S, min(end, deadline) - time.monotonic()))
            if news in ready:
                _tell(listen, self._heard(news))
                news = self._meeting.reports.remote()
            for ref in (ref for ref in ready if ref in self._running):
                rank = self._running.pop(ref)
                outcome = Outcome.taken(ref, f"worker {rank}")
                if outcome.result is not None:
                    results[rank] = outcome.result
                elif not outcome.consequence:
                    failure = outcome.failure(rank)
                    if results or consequence or not self._replaced(failure, replace):
                        raise failure
                elif consequence is None:
                    consequence, deadline = outcome.failure(rank), time.monotonic() + _CAUSE_WITHIN_S
            if consequence is not None and (time.monotonic() > deadline or not self._running):
                raise consequence
            if time.monotonic() > end:
                late = ", ".join(str(rank) for rank in sorted(self._running.values()))
                raise RunTimeoutError(f"not done after {timeout_s:g} s; still at work: worker {late}")
        self._meeting.close.remote()
        for rest in (news, self._meeting.reports.remote()):
            _tell(listen, self._heard(rest))
        return [results[rank].open() for rank in range(self._size)]

    def _replaced(self, failure: WorkerError, replace: Replace | None) -> bool:
        """Whether another worker has taken the place of one that was lost; those who wait for it are told."""
        if replace is None or not isinstance(failure, WorkerLostError) or failure.rank is None:
            return False
        another = self._another(failure.rank)
        if another is None or not replace(failure):
            return False
        self._workers[failure.rank] = another
        self._run(failure.rank, ray.get(self._meeting.replace.remote(failure.rank)))
        return True

    def _another(self, rank: int) -> Any:
        """A process in the place of one that was lost, unless that went with its node."""
        assert self._group is not None
        another = self._actor(rank, self._group)
        ready = another.ready.remote()
        end = time.monotonic() + _REPLACED_WITHIN_S
        while time.monotonic() < end and placement_group_table(self._group)["state"] == "CREATED":
            self._cluster.check_alive()
            if ray.wait([ready], timeout=_LOOK_EVERY_S / 5)[0]:
                return another
        ray.kill(another, no_restart=True)
        return None

    def _heard(self, news: Any) -> list[tuple[int, bytes]]:
        try:
            reports: list[tuple[int, bytes]] = ray.get(news)
        except ray.exceptions.RayError as error:
            raise WorkerLostError(None, f"the process where the workers meet was lost: {error}") from error
        return reports

    def stop(self) -> None:
        """Leave nothing behind; those that wait for a peer are told, then all are ended."""
        if not self._cluster.lives():
            return
        try:
            if self._meeting is not None and self._running:
                self._meeting.end.remote("another worker failed, and the run is over")
                ray.wait([*self._running], num_returns=len(self._running), timeout=_LEAVE_WITHIN_S, fetch_local=False)
        finally:
            for actor in [*self._workers, self._meeting]:
                if actor is not None:
                    with contextlib.suppress(ray.exceptions.RayError):  # it has gone already, or Ray has
                        ray.kill(actor, no_restart=True)
            if self._group is not None:
                with contextlib.suppress(ray.exceptions.RayError):
                    remove_placement_group(self._group)


def _tell(listen: Listener | None, reports: list[tuple[int, bytes]]) -> None:
    if listen is not None:
        for rank, message in reports:
            listen(rank, cloudpickle.loads(message))
