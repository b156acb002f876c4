"""A function that makes the data, called on each worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from seamline.core import creator, registry
from seamline.core.shards import Batch, Columns, Numbered, Reading, Shard, numbered


@dataclass(frozen=True, slots=True)
class CreatorShards:
    """Data that exists only where it is read: ``make()``, ``make(config)`` or ``make(config, batch_size)``."""

    make: Callable[..., Any]
    columns: Columns = Columns()
    rows: int | None = None
    batch_size: int | None = None

    @staticmethod
    def accepts(data: object) -> bool:
        return callable(data)

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        return [CreatorShard(self, reading, worker, workers) for worker in range(workers)]


@dataclass(frozen=True)
class CreatorShard:
    """The shard of what the function makes, made when it is first read."""

    source: CreatorShards
    reading: Reading
    worker: int
    workers: int

    @cached_property
    def _made(self) -> Shard:
        data = creator.call(self.source.make, self.reading.config, self.reading.batch_size)
        shards = registry.shards(data, self.source.columns)
        return shards.split(self.workers, self.reading)[self.worker]

    @property
    def steps(self) -> int | None:
        return self._made.steps

    @property
    def numbered(self) -> Numbered | None:
        return numbered(self._made)

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        return self._made.batches(epoch, first_step)
