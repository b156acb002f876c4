"""What the workers of a run read: data as shards, one for each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from seamline.core import registry
from seamline.core.engine import Listener
from seamline.core.events import Note
from seamline.core.framework import Feed
from seamline.core.logical import LOGICAL_WORKERS, LogicalShard
from seamline.core.shards import Columns, Reading, Shard, Shards, put_away, signature_of
from seamline.orca.crew import Crew

TRAINING_BATCH = 32
READING_BATCH = 256
"""Rows in a batch where neither the user nor the data says."""

FedAgain = Callable[[Sequence[Feed], Listener], Sequence[Feed]]
"""What workers read when a run starts again, given what they read last."""


def feeds(
    data: Any,
    validation_data: Any,
    columns: Columns,
    reading: Reading,
    *,
    workers: int,
    most: int,
    deterministic: bool | int,
    aside: ExitStack,
) -> tuple[list[Feed], dict[str, Any]]:
    """What each worker trains and validates with, and what tells whether a place in it means the same elsewhere.

    What is written aside for that goes with ``aside``. It has to be enough for ``most`` workers, if there are to be
    more of them later.
    """
    parts = _logical_workers(deterministic, most) if deterministic else workers
    train, signature = _to_train(registry.shards(data, columns), reading, parts, most, aside)
    validation: Sequence[Shard | None] = [None] * workers
    if validation_data is not None:
        unweighed = replace(columns, weight=None)  # validation counts every row alike
        validation = to_read(registry.shards(validation_data, unweighed), reading, parts, aside)
    if deterministic:
        signature["logical_workers"] = parts
        train = list(LogicalShard.of(train, workers))
        if validation_data is not None:
            validation = LogicalShard.of([shard for shard in validation if shard is not None], workers)
    return [Feed(*pair) for pair in zip(train, validation, strict=True)], signature


def fed_again(
    crew: Crew, feed: Callable[..., tuple[list[Feed], Any]], fed: Sequence[Feed], show: Listener
) -> Sequence[Feed]:
    """What the workers of another start read: the same, unless there is room for fewer or more of them now."""
    size = crew.size(patient=True)
    if size == len(fed):
        return fed
    show(0, Note(f"the run goes on with {size} of at most {crew.most} workers"))
    return feed(workers=size)[0]


def to_read(shards: Shards, reading: Reading, workers: int, aside: ExitStack) -> list[Shard]:
    """Every row in its order, for those who evaluate and predict."""
    aside.callback(put_away, shards)
    size = reading.batch_size or READING_BATCH
    return shards.split(workers, replace(reading, batch_size=size, shuffle=False, every_row_in_order=True))


def _to_train(
    shards: Shards, reading: Reading, workers: int, most: int, aside: ExitStack
) -> tuple[list[Shard], dict[str, Any]]:
    aside.callback(put_away, shards)
    if shards.batch_size and reading.batch_size and shards.batch_size != reading.batch_size:
        raise ValueError(
            f"batch_size={reading.batch_size}, but the data comes in batches of {shards.batch_size}; "
            "leave batch_size out, or change it where the batches are made"
        )
    size = shards.batch_size or reading.batch_size or TRAINING_BATCH
    needed = max(workers, most)
    if size < needed:
        raise ValueError(
            f"batch_size={size} is smaller than workers={needed}; every worker needs at least one row of each batch"
        )
    parts = shards.split(workers, replace(reading, batch_size=size))
    return parts, {"batch_size": size, "shuffle": reading.shuffle, **signature_of(shards)}


def _logical_workers(wish: bool | int, workers: int) -> int:
    count = LOGICAL_WORKERS if wish is True else wish
    if count < workers or count & (count - 1):
        raise ValueError(
            f"deterministic={count} logical workers for workers={workers}: take a power of two that is not smaller"
        )
    return count
