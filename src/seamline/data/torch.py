"""Torch data sets and loaders: the user's batches, samplers, collating and loading workers; our sharding."""

from __future__ import annotations

import copy
import itertools
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from seamline.core import rng, tree
from seamline.core.shards import Batch, Columns, Numbered, Place, Reading, Shard, Unpaired
from seamline.data.balance import part
from seamline.data.order import epoch_order

KEPT_SETTINGS = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "prefetch_factor")


class LoaderShards:
    """A ``Dataset`` or ``DataLoader``; the loader's batch is the batch over all workers."""

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        if columns.features is not None:
            raise TypeError("feature_cols names columns, which a torch Dataset or DataLoader does not have")
        columns.names_alone("a torch Dataset or DataLoader")
        self._data = data

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, (DataLoader, Dataset))

    @property
    def rows(self) -> int | None:
        rows = getattr(self._data, "sampler", self._data)
        return len(rows) if hasattr(rows, "__len__") and not isinstance(rows, IterableDataset) else None

    @property
    def batch_size(self) -> int | None:
        return self._data.batch_size if isinstance(self._data, DataLoader) else None

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        loader = self._data if isinstance(self._data, DataLoader) else _loader(self._data, reading)
        if streams(loader):
            return [StreamShard(loader, worker, workers, reading.seed) for worker in range(workers)]
        plan = LoadingPlan.of(loader, reading)
        return [IndexedShard(plan, worker, workers) for worker in range(workers)]


def _loader(dataset: Dataset[Any], reading: Reading) -> DataLoader[Any]:
    if reading.batch_size is None:
        raise ValueError("batch_size is missing; a torch Dataset has no batches of its own")
    shuffle = reading.shuffle and not isinstance(dataset, IterableDataset)
    return DataLoader(dataset, batch_size=reading.batch_size, shuffle=shuffle)


def streams(loader: DataLoader[Any]) -> bool:
    """Whether rows come only by iterating: no index, or batches that the loader makes in its own way."""
    return (
        isinstance(loader.dataset, IterableDataset)
        or loader.batch_sampler is None
        or type(loader).__iter__ is not DataLoader.__iter__
    )


@dataclass(frozen=True, slots=True)
class LoadingPlan:
    """What there is to know of a loader over indexed rows, without its running parts."""

    dataset: Any
    batch_sampler: Any
    settings: dict[str, Any]
    start_method: str | None
    persistent_workers: bool
    seed: int
    every_row_in_order: bool

    @classmethod
    def of(cls, loader: DataLoader[Any], reading: Reading) -> LoadingPlan:
        context = loader.multiprocessing_context
        return cls(
            loader.dataset,
            loader.batch_sampler,
            {name: getattr(loader, name) for name in KEPT_SETTINGS},
            context.get_start_method() if context is not None else None,
            loader.persistent_workers,
            reading.seed,
            reading.every_row_in_order,
        )

    @property
    def full(self) -> int:
        """The size of a batch that is not cut short; 0 if only the batches themselves know."""
        return getattr(self.batch_sampler, "batch_size", 0) or 0

    def batches(self, epoch: int) -> Iterable[Sequence[int]]:
        """The rows of every batch of an epoch, the same on every worker."""
        if type(self.batch_sampler) is not BatchSampler:
            return self._replay(self.batch_sampler, epoch)
        size, drop_last = self.batch_sampler.batch_size, self.batch_sampler.drop_last
        order = self._order(epoch)
        whole = len(order) - len(order) % size if drop_last and not self.every_row_in_order else len(order)
        return [order[first : first + size] for first in range(0, whole, size)]

    def _order(self, epoch: int) -> Sequence[int]:
        sampler = self.batch_sampler.sampler
        rows = len(self.dataset)
        if isinstance(sampler, DistributedSampler):
            return self._ordered(rows, epoch, shuffle=sampler.shuffle and not self.every_row_in_order)
        if type(sampler) is SequentialSampler:
            return self._ordered(rows, epoch, shuffle=False)
        if type(sampler) is RandomSampler and not sampler.replacement and sampler.num_samples == rows:
            return self._ordered(rows, epoch, shuffle=not self.every_row_in_order)
        return self._replay(sampler, epoch)

    def _ordered(self, rows: int, epoch: int, *, shuffle: bool) -> Sequence[int]:
        order: Sequence[int] = epoch_order(rows, shuffle=shuffle, seed=self.seed, epoch=epoch).tolist()
        return order

    def _replay(self, sampler: Any, epoch: int) -> list[Any]:
        """What a sampler of the user's gives, made the same on every worker and in every restart."""
        sampler = copy.copy(sampler)
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(epoch)
        if getattr(sampler, "generator", None) is not None:
            seed = rng.derive(sampler.generator.initial_seed(), epoch)
            sampler.generator = torch.Generator().manual_seed(seed >> 1)
        with rng.restored(), torch.random.fork_rng(devices=()):
            _seed_everything(rng.derive(self.seed, epoch))
            return list(sampler)

    def loader(self, parts: _Parts) -> DataLoader[Any]:
        with warnings.catch_warnings():
            # It counts the cores of this worker, where the user has counted those of the machine.
            warnings.filterwarnings("ignore", message="This DataLoader will create")
            return DataLoader(
                _SeededRows(self.dataset),
                batch_sampler=parts,  # type: ignore[arg-type]
                multiprocessing_context=self.start_method,
                persistent_workers=self.persistent_workers,
                **self.settings,
            )


@dataclass(frozen=True)
class IndexedShard:
    """One worker's part of each batch of indexed rows; only that part is loaded here."""

    plan: LoadingPlan
    worker: int
    workers: int

    @cached_property
    def steps(self) -> int:
        return len(self.plan.batch_sampler) if hasattr(self.plan.batch_sampler, "__len__") else self._count()

    def _count(self) -> int:
        return sum(1 for _ in self.plan.batches(0))

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts()

    @cached_property
    def _loader(self) -> DataLoader[Any]:
        return self.plan.loader(self._parts)

    @property
    def numbered(self) -> Numbered | None:
        return self if hasattr(self.plan.dataset, "__len__") else None

    @property
    def count(self) -> int:
        return len(self.plan.dataset)

    def places(self, epoch: int, first_step: int = 0) -> Iterator[Place]:
        first = 0
        for step, rows in enumerate(self.plan.batches(epoch)):
            mine = part(len(rows), self.worker, self.workers, full=self.plan.full)
            if step >= first_step:
                yield Place(rows[mine.read], first + mine.low, mine.rows, len(rows))
            first += len(rows)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        if hasattr(self.plan.dataset, "set_epoch"):
            self.plan.dataset.set_epoch(epoch)
        places = list(self.places(epoch, first_step))
        seeds = (rng.derive(self.plan.seed, epoch, step, self.worker) for step in itertools.count(first_step))
        self._parts.clear()
        self._parts.extend(_Part(seed, place.numbers) for place, seed in zip(places, seeds, strict=False))
        for item, place in zip(self._loader, places, strict=True):
            yield Batch(*_inputs_and_targets(item), place.start, place.rows, place.batch_rows)

    def read(self, numbers: Sequence[int]) -> tuple[Any, Any]:
        rows = _several(self.plan.dataset, numbers)
        return _inputs_and_targets(self.plan.settings["collate_fn"](rows))


@dataclass(frozen=True, slots=True)
class StreamShard:
    """Rows that come only by iterating: every worker reads all of them and keeps its part of each batch."""

    loader: DataLoader[Any]
    worker: int
    workers: int
    seed: int

    @property
    def steps(self) -> None:
        return None

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        first = 0
        for step, item in enumerate(OwnRandomness(self.loader, rng.derive(self.seed, epoch))):
            rows = count_rows(item)
            mine = part(rows, self.worker, self.workers, full=self.loader.batch_size or 0)
            if step >= first_step:
                inputs, targets = _inputs_and_targets(some_rows(item, mine.read))
                mark = fingerprint(item) if self.workers > 1 else None
                yield Batch(inputs, targets, first + mine.low, mine.rows, rows, mark)
            first += rows


class OwnRandomness:
    """Iterate with random numbers of one's own, whatever is drawn and seeded in between.

    So a stream that draws gives the same rows on every worker, and again when it is read anew after a restart.
    """

    def __init__(self, items: Iterable[Any], seed: int) -> None:
        self._items = items
        self._seed = seed

    def __iter__(self) -> Iterator[Any]:
        with rng.restored(), torch.random.fork_rng(devices=()):
            _seed_everything(self._seed)
            items = iter(self._items)
            mine = _random_state()
        while True:
            with rng.restored(), torch.random.fork_rng(devices=()):
                _set_random_state(mine)
                try:
                    item = next(items)
                except StopIteration:
                    return
                mine = _random_state()
            yield item


def _random_state() -> tuple[Any, Any]:
    return rng.state(), torch.random.get_rng_state()


def _set_random_state(state: tuple[Any, Any]) -> None:
    rng.set_state(state[0])
    torch.random.set_rng_state(state[1])


def fingerprint(item: Any) -> int:
    """A number that differs when any value of a batch does."""
    total = 0
    for leaf in tree.leaves(item):
        data: Any
        if isinstance(leaf, torch.Tensor):
            data = leaf.detach().cpu().reshape(-1).view(torch.uint8).numpy() if leaf.numel() else b""
        else:
            data = repr(leaf).encode()
        total = zlib.crc32(data, total)
    return total


@dataclass(frozen=True, slots=True)
class _Part:
    seed: int
    rows: Sequence[int]


class _Parts(list[_Part]):
    """A batch sampler that is filled anew for each epoch, so that the loader's workers can stay."""


class _SeededRows(Dataset[Any]):
    """The user's rows, read with random numbers that depend on the batch and not on who loads it."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitems__(self, part: _Part) -> list[Any]:
        _seed_everything(part.seed)
        return _several(self._dataset, part.rows)

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":
            raise AttributeError(name)
        return getattr(self._dataset, name)


def _several(dataset: Any, numbers: Sequence[int]) -> list[Any]:
    together = getattr(dataset, "__getitems__", None)
    rows: list[Any] = together(numbers) if together else [dataset[number] for number in numbers]
    return rows


def _seed_everything(seed: int) -> None:
    rng.seed_python_and_numpy(seed)
    torch.manual_seed(seed >> 1)


def _inputs_and_targets(item: Any) -> tuple[Any, Any]:
    """A pair is input and target; of more parts the last is the target; all else is input."""
    if isinstance(item, (tuple, list)) and not hasattr(item, "_fields"):
        if len(item) == 1:
            return Unpaired(item), None
        return (item[0] if len(item) == 2 else Unpaired(item[:-1])), item[-1]
    return item, None


def count_rows(item: Any) -> int:
    if isinstance(item, dict):
        return count_rows(next(iter(item.values())))
    if isinstance(item, (tuple, list)) and not _is_column(item):
        return count_rows(item[0])
    return len(item)


def some_rows(item: Any, chosen: slice) -> Any:
    if isinstance(item, dict):
        return {key: some_rows(value, chosen) for key, value in item.items()}
    if isinstance(item, (tuple, list)) and not _is_column(item):
        return type(item)(some_rows(value, chosen) for value in item)
    return item[chosen]


def _is_column(item: Sequence[Any]) -> bool:
    """A list of plain values, one for each row, such as the strings that collating leaves alone."""
    return bool(item) and not isinstance(item[0], (torch.Tensor, dict, tuple, list))
