"""Tasks that never meet, as tasks of Ray; it computes again what is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ray

from seamline.core.blocks import produced
from seamline.core.engine import Block, Item, Result
from seamline.engines.ray.broadcast import Known
from seamline.engines.ray.cluster import Cluster
from seamline.engines.ray.outcome import Outcome, arrived
from seamline.engines.ray.parcel import Parcel, stored
from seamline.engines.ray.worker import find_modules

_LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Tasks:
    """How tasks are run: one CPU each, how often each may be repeated, and on which Ray."""

    retries: int
    cluster: Cluster

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        parcels = [Parcel.of(function, "the function")]
        parcels += [Parcel.of(item, f"item {index}") for index, item in enumerate(items)]
        work, *each = stored(parcels)
        call, ref = self._remote(_call), _put(work)
        return self._take([call.remote(ref, item) for item in each])

    def exchange(
        self,
        produce: Callable[[Item], Sequence[Block]],
        items: Sequence[Item],
        consume: Callable[[int, list[Block]], Result],
    ) -> list[Result]:
        """The blocks go from store to store; the driver only learns how each task ended."""
        count = len(items)
        parcels = [Parcel.of(produce, "produce"), Parcel.of(consume, "consume")]
        parcels += [Parcel.of(item, f"item {index}") for index, item in enumerate(items)]
        giving, taking, *each = stored(parcels)
        give, ref = self._remote(_give, num_returns=1 + count), _put(giving)
        rows = [give.remote(ref, item, count) for item in each]
        self._take([row[0] for row in rows])
        take, ref = self._remote(_take), _put(taking)
        return self._take([take.remote(ref, j, *(row[1 + j] for row in rows)) for j in range(count)])

    def _remote(self, function: Callable[..., Any], **options: Any) -> Any:
        return ray.remote(function).options(num_cpus=1, max_retries=self.retries, retry_exceptions=False, **options)

    def _take(self, refs: list[Any]) -> list[Any]:
        """The results in order; the first failure ends the tasks that still run."""
        waiting = {ref: index for index, ref in enumerate(refs)}
        parcels: dict[int, Parcel] = {}
        try:
            while waiting:
                self.cluster.check_alive()
                for ref in sorted(arrived(waiting, _LOOK_EVERY_S), key=lambda each: waiting[each]):
                    index = waiting.pop(ref)
                    outcome = Outcome.taken(ref, f"item {index}")
                    if outcome.result is None:
                        raise outcome.failure(index)
                    parcels[index] = outcome.result
        finally:
            if waiting and self.cluster.lives():
                for ref in waiting:
                    ray.cancel(ref, force=True)
        return [parcels[index].open() for index in range(len(refs))]


Work = tuple[list[str], Known, Parcel]
"""A function, and what its tasks need around it."""


def _put(function: Parcel) -> Any:
    return ray.put((sys.path, Known.now(), function))


def _function(work: Work) -> Callable[..., Any]:
    paths, known, parcel = work
    find_modules(paths)
    known.install()
    function: Callable[..., Any] = parcel.open()
    return function


def _try(work: Work, call: Callable[[Callable[..., Any]], Any]) -> Outcome:
    try:
        return Outcome(Parcel.of(call(_function(work)), "the result"))
    except BaseException as error:
        return Outcome.of_failure(error)


def _call(work: Work, item: Parcel) -> Outcome:
    return _try(work, lambda function: function(item.open()))


def _take(work: Work, number: int, *blocks: bytes) -> Outcome:
    return _try(work, lambda function: function(number, list(blocks)))


def _give(work: Work, item: Parcel, count: int) -> tuple[Outcome | bytes, ...]:
    """How it went, then the blocks: Ray stores bytes as they are."""
    blocks = [b""] * count

    def produce(function: Callable[..., Any]) -> None:
        blocks[:] = [bytes(block) for block in produced(function, item.open(), count)]

    return _try(work, produce), *blocks
