"""Shards in Ray's object store; functions go to them as tasks, and what is exchanged goes from store to store."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ray

from seamline.core import chain as chains
from seamline.core.chain import Chain, Gathered, Outcome, Pair, Scattering, packed
from seamline.core.collection import Collection, Function, Gather, Scatter
from seamline.engines.ray.broadcast import Known
from seamline.engines.ray.outcome import Outcome as Ending
from seamline.engines.ray.outcome import arrived
from seamline.engines.ray.parcel import Parcel
from seamline.engines.ray.worker import find_modules

_LOOK_EVERY_S = 0.5
_RETRIES = 2

Leaves = tuple[Any, ...]
"""Where the leaves of one shard are."""


class RayCollection:
    """References to shards; the objects go away with the last collection that refers to them."""

    def __init__(self, items: Sequence[Leaves], chain: Chain, check: Callable[[], None]) -> None:
        self._items = list(items)
        self._chain = chain
        self._check = check

    @classmethod
    def of(cls, values: Sequence[Any], check: Callable[[], None]) -> RayCollection:
        parcels = [Parcel.of(Outcome(value), f"item {index}") for index, value in enumerate(values)]
        return cls([(ray.put(parcel),) for parcel in parcels], Chain(), check)

    @property
    def count(self) -> int:
        return len(self._items)

    def map(self, function: Function) -> RayCollection:
        return RayCollection(self._items, self._chain.then(function), self._check)

    def zip(self, other: Collection) -> RayCollection:
        if not isinstance(other, RayCollection):
            raise TypeError("shards of two engines cannot be zipped; make both in the same context")
        items = [left + right for left, right in zip(self._items, other._items, strict=True)]
        return RayCollection(items, Chain(Pair(self._chain, other._chain)), self._check)

    def exchange(self, scatter: Scatter, count: int, gather: Gather) -> RayCollection:
        rows = self._submit(_scatter, Scattering(self._chain, scatter, count), range(self.count), 1 + count)
        columns = [tuple(row[1 + number] for row in rows) for number in range(count)]
        return RayCollection(columns, Chain(Gathered(gather, self.count)), self._check)

    def collect(self, numbers: Sequence[int] | None = None) -> list[Any]:
        chosen = range(self.count) if numbers is None else numbers
        sent = self._submit(_run, self._chain, chosen, 2)
        return chains.values([parcel.open() for parcel in self._take([pair[1] for pair in sent])])

    def keep(self) -> RayCollection:
        if self._chain.idle:
            return self
        return RayCollection([(ref,) for ref in self._computed(_run)], Chain(), self._check)

    def release(self) -> None:
        """The store forgets what nobody refers to."""

    def tables(self) -> list[Any]:
        """References to the shards themselves, for Arrow tables."""
        return self._computed(_run_plain)

    def _computed(self, entry: Callable[..., Any]) -> list[Any]:
        """References to what the shards have become; failures are raised, and nothing else comes here."""
        sent = self._submit(entry, self._chain, range(self.count), 2)
        chains.values(self._take([pair[0] for pair in sent]))
        return [pair[1] for pair in sent]

    def _submit(self, entry: Callable[..., Any], work: object, numbers: Sequence[int], returns: int) -> list[Any]:
        ref = ray.put((sys.path, Known.now(), Parcel.of(work, "the function")))
        task: Any = ray.remote(entry).options(
            num_cpus=1, max_retries=_RETRIES, retry_exceptions=False, num_returns=returns
        )
        return [task.remote(ref, number, *self._items[number]) for number in numbers]

    def _take(self, refs: list[Any]) -> list[Any]:
        """What the tasks gave, in order; a process that is lost too often ends those that still run."""
        waiting = {ref: index for index, ref in enumerate(refs)}
        given: dict[int, Any] = {}
        try:
            while waiting:
                self._check()
                for ref in arrived(waiting, _LOOK_EVERY_S):
                    index = waiting.pop(ref)
                    given[index] = _got(ref, index)
        finally:
            for ref in waiting:
                ray.cancel(ref, force=True)
        return [given[index] for index in range(len(refs))]


def adopted(dataset: Any, check: Callable[[], None]) -> RayCollection:
    """The blocks of a Dataset as Arrow tables, in their order; they stay where they are."""
    options = dataset.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        with _quiet():
            return RayCollection([(ref,) for ref in dataset.to_arrow_refs()], Chain(), check)
    finally:
        options.preserve_order = before


def native(tables: Collection, schema: Any, check: Callable[[], None]) -> Any:
    """A Dataset whose blocks are these tables; they are first brought to Ray if they are elsewhere."""
    if not isinstance(tables, RayCollection):
        tables = RayCollection.of(tables.collect(), check)
    with _quiet():
        import ray.data

        return ray.data.from_arrow_refs(tables.tables())


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that Ray Data gives itself when it copies its settings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"ray\.data\.context")
        yield


Work = tuple[list[str], Known, Parcel]
"""What a task does, and what it needs around it."""


def _run(work: Work, number: int, *leaves: Any) -> tuple[Outcome, Parcel]:
    """How it went, without the shard; and the shard."""
    outcome = _opened(work).run(number, [_leaf(each) for each in leaves])
    seen: list[Outcome] = []  # the outcome that could be packed: the shard, or why it cannot travel

    def pack(each: Outcome) -> Parcel:
        parcel = Parcel.of(each, "the result")
        seen.append(replace(each, value=None))
        return parcel

    parcel = packed(outcome, number, pack)
    return seen[-1], parcel


def _run_plain(work: Work, number: int, *leaves: Any) -> tuple[Outcome, Any]:
    outcome = _opened(work).run(number, [_leaf(each) for each in leaves])
    return replace(outcome, value=None), outcome.value


def _scatter(work: Work, number: int, *leaves: Any) -> tuple[Any, ...]:
    """Nothing, then the pieces; so that Ray always sees several things, also where there is one piece."""
    outcomes = _opened(work).run(number, [_leaf(each) for each in leaves])
    return None, *(packed(outcome, number, _parcel) for outcome in outcomes)


def _opened(work: Work) -> Any:
    paths, known, parcel = work
    find_modules(paths)
    known.install()
    return parcel.open()


def _leaf(given: Any) -> Outcome:
    """What has come: a parcel of ours, or a table of Ray's that was never packed."""
    if isinstance(given, Parcel):
        outcome: Outcome = given.open()
        return outcome
    return Outcome(given)


def _parcel(outcome: Outcome) -> Parcel:
    return Parcel.of(outcome, "the result")


def _got(ref: Any, index: int) -> Any:
    got: Any = Ending.taken(ref, f"shard {index}")
    if isinstance(got, Ending):
        raise got.failure(index)
    return got
