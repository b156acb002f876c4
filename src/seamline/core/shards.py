"""What each worker reads: batches whose order does not depend on the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from seamline.core.world import World

BUFFER_BYTES = 512 * 2**20
"""What a worker may hold of a table that is larger, where the user does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a data set is to be read.

    ``batch_size`` counts the rows of a batch over all workers; ``None`` leaves it to data that has batches
    of its own. ``shuffle`` does not touch data with an order of its own, such as a ``DataLoader``;
    ``every_row_in_order``, for predicting, overrides a loader's shuffling and dropping. A worker holds at most
    ``memory_bytes`` of a table; what has to be written aside for that goes to ``cache_dir``, or to the disk of the
    machine where the rows are.
    """

    batch_size: int | None = None
    shuffle: bool = False
    every_row_in_order: bool = False
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: int = BUFFER_BYTES
    cache_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which named columns are inputs and which are targets.

    A name stands for an input of its own; a list of names inside the list is put side by side into one. ``na`` is what
    becomes of missing values: ``"drop"`` leaves out their rows, a number takes their place, in all columns or in those
    that a dict names. A column with an entry in ``categories`` becomes the number of each value in that list.
    """

    features: Sequence[str | Sequence[str]] | None = None
    labels: Sequence[str | Sequence[str]] | None = None
    na: Any = None
    categories: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    weight: str | None = None
    """The column that says how much each row counts; targets then come as ``Weighed``."""

    def names_alone(self, what: str) -> None:
        """Refuse what only tables understand."""
        if self.weight is not None and self.features is None:
            raise TypeError(f"weight_col= names a column, and the data is {what}; arrays take sample_weight=")
        if self.na is not None or self.categories:
            raise TypeError(f"na= and categories= are for tables, and the data is {what}")


class Weighed(NamedTuple):
    """Targets with the weight of each row beside them, as one tree that is cut and moved like any other."""

    targets: Any
    weights: Any


class Unpaired(tuple[Any, ...]):
    """Inputs of a loader whose items are flat, such as ``(a, b, y)`` or ``(a,)``, for those who want the item back."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """One worker's part of one batch.

    ``start`` is the position of its first row in the epoch's order. A part of 0 rows still holds one row,
    so that the model can be run in step with the other workers; that row must count for nothing.
    """

    inputs: Any
    targets: Any
    start: int
    rows: int
    batch_rows: int
    fingerprint: int | None = None
    """Of the whole batch, where workers read it independently and have to make sure that it is the same."""


@dataclass(frozen=True, slots=True)
class Place:
    """One worker's part of one batch before it is read: the numbers of its rows, and what ``Batch`` says of them."""

    numbers: Sequence[int]
    start: int
    rows: int
    batch_rows: int


class Numbered(Protocol):
    """Rows with numbers from 0 to ``count``, so that those which are known need not be read again."""

    @property
    def count(self) -> int: ...

    def places(self, epoch: int, first_step: int = 0) -> Iterator[Place]:
        """Where the batches of ``Shard.batches`` come from."""
        ...

    def read(self, numbers: Sequence[int]) -> tuple[Any, Any]:
        """Inputs and targets of any rows, as a batch; with the random numbers of the caller, if it draws."""
        ...


def numbered(shard: Shard) -> Numbered | None:
    """The shard's rows by number, if they have numbers: a shard says so by a property of this name."""
    return getattr(shard, "numbered", None)


class Shard(Protocol):
    """One worker's view of the data; it travels to the worker and reads there."""

    @property
    def steps(self) -> int | None:
        """Batches in an epoch; ``None`` when only the end of the data tells."""
        ...

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """This worker's part of every batch of an epoch, from ``first_step`` on."""
        ...


def met(shard: Shard, world: World) -> Shard:
    """The shard once it knows its peers: some depend on who can see which files, and say so by a method ``meet``."""
    meet = getattr(shard, "meet", None)
    known: Shard = shard if meet is None else meet(world)
    return known


class Shards(Protocol):
    """Data that can be split among workers; nothing is read before a worker asks.

    Data that has to be written aside first may be closed, which removes that; and it may have a ``signature``: what
    a run must find again to go on in the middle of an epoch.
    """

    @property
    def rows(self) -> int | None:
        """How many rows there are, where that is known before reading."""
        ...

    @property
    def batch_size(self) -> int | None:
        """The batch size that the data brings along, if it does."""
        ...

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        """One shard for each worker, together every row exactly once per epoch."""
        ...


def signature_of(shards: Shards) -> Mapping[str, Any]:
    """What tells whether a place in this data means the same in another run."""
    return {"rows": shards.rows, **getattr(shards, "signature", {})}


def beside(shards: Shards) -> Any:
    """How answers are put beside the rows of a table that lies elsewhere: such data has a method of this name."""
    return getattr(shards, "beside", None)


def put_away(shards: Shards) -> None:
    """Remove what was written aside, if anything was."""
    closing = getattr(shards, "close", None)
    if closing is not None:
        closing()
