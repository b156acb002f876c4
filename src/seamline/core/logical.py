"""Logical workers: a batch is always cut for the same number of them, however many real ones compute the parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from seamline.core.shards import Batch, Shard, met
from seamline.core.world import World

LOGICAL_WORKERS = 8
"""Where the user does not say."""

T = TypeVar("T")


def share(logical: int, worker: int, workers: int) -> range:
    """The logical workers that a real one stands for: neighbours, as many as the others have or one more."""
    return range(logical * worker // workers, logical * (worker + 1) // workers)


@dataclass(frozen=True, slots=True)
class LogicalBatch(Batch):
    """The parts of one batch that a real worker computes; together they are its part."""

    parts: Sequence[Batch] = ()

    @classmethod
    def of(cls, parts: Sequence[Batch]) -> LogicalBatch:
        first = parts[0]
        rows = sum(part.rows for part in parts)
        return cls(None, None, first.start, rows, first.batch_rows, first.fingerprint, parts)


@dataclass(frozen=True, slots=True)
class LogicalShard:
    """The shards of some logical workers, the first of which has the number ``first`` of ``count``."""

    shards: Sequence[Shard]
    first: int
    count: int

    @classmethod
    def of(cls, shards: Sequence[Shard], workers: int) -> list[LogicalShard]:
        """One for each real worker."""
        shares = [share(len(shards), worker, workers) for worker in range(workers)]
        return [cls([shards[number] for number in some], some.start, len(shards)) for some in shares]

    @property
    def steps(self) -> int | None:
        return self.shards[0].steps

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + len(self.shards))

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        for parts in zip(*(shard.batches(epoch, first_step) for shard in self.shards), strict=True):
            yield LogicalBatch.of(parts)

    def meet(self, world: World) -> LogicalShard:
        heard: dict[int, list[Any]] = {}
        worlds = [_LogicalWorld(number, self.count, world, heard) for number in self.numbers]
        known = [met(shard, each) for shard, each in zip(self.shards, worlds, strict=True)]
        return LogicalShard(known, self.first, self.count)


def parts_of(shard: Shard) -> Sequence[Shard]:
    """The shards that one shard consists of: itself, or those of the logical workers."""
    return shard.shards if isinstance(shard, LogicalShard) else [shard]


@dataclass(slots=True)
class _LogicalWorld:
    """What a shard sees of its peers; logical workers of one process would all say the same, and one says it."""

    rank: int
    size: int
    real: World
    heard: dict[int, list[Any]]
    asked: int = field(default=0)

    @property
    def host(self) -> str:
        return self.real.host

    def all_gather(self, value: T) -> list[T]:
        if self.asked not in self.heard:
            said = self.real.all_gather(value)
            owners = [worker for worker in range(self.real.size) for _ in share(self.size, worker, self.real.size)]
            self.heard[self.asked] = [said[owner] for owner in owners]
        self.asked += 1
        return self.heard[self.asked - 1]

    def report(self, message: object) -> None:
        self.real.report(message)

    @property
    def generation(self) -> int:
        return self.real.generation

    def renew(self) -> None:
        self.real.renew()
