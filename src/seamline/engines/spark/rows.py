"""What Spark's Python processes do where jobs are made of data frames: Spark Connect.

All frames of ours have the same columns. A row is a word for the driver, or bytes on their way: to which shard they
belong and which place they have among the others of that shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from seamline.core.chain import Chain, Outcome, Scattering, packed
from seamline.core.packet import Packet, Part
from seamline.engines.spark import shards
from seamline.engines.spark.keeper import Orders, keep
from seamline.engines.spark.task import TaskOrders, consume_blocks, map_item, produce_blocks
from seamline.engines.spark.wire import read

COLUMNS = "said string, shard int, place int, leaf binary"
_SCHEMA = pa.schema([("said", pa.string()), ("shard", pa.int32()), ("place", pa.int32()), ("leaf", pa.binary())])

_function: dict[bytes, tuple[Part, ...]] = {}
"""The function of the latest job that this process has worked for, by the token of that job."""


class Row(NamedTuple):
    """One row of our frames."""

    shard: int
    place: int
    leaf: Any


def table(rows: Sequence[Row]) -> Any:
    """Rows as one Arrow table."""
    columns = ([None] * len(rows), *([row[field] for row in rows] for field in range(3)))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


# Workers and tasks


def keep_worker(orders: Orders, rank: int, batches: Iterator[Any]) -> Iterator[Any]:
    _drain(batches)
    for said in keep(orders, rank, iter(())):
        yield _word(said)


def map_number(orders: tuple[TaskOrders, list[int]], index: int, batches: Iterator[Any]) -> Iterator[Any]:
    """Fetch the item and the function, and tell the driver the result."""
    _drain(batches)
    number = orders[1][index]
    fetched = _fetched(orders[0], number)
    if fetched is not None:
        yield from map(_word, map_item(fetched[0], index, iter([(number, fetched[1])])))


def give_blocks(orders: TaskOrders, index: int, batches: Iterator[Any]) -> Iterator[Any]:
    _drain(batches)
    fetched = _fetched(orders, index)
    if fetched is not None:
        for consumer, (number, block) in produce_blocks(fetched[0], index, iter([(index, fetched[1])])):
            yield _bytes(Row(consumer, number, block))


def take_blocks(orders: TaskOrders, index: int, batches: Iterator[Any]) -> Iterator[Any]:
    blocks = [(row.shard, (row.place, row.leaf)) for row in _rows(batches)]
    equipped = _equipped(orders)
    if equipped is not None:
        yield from map(_word, consume_blocks(equipped, index, iter(blocks)))


# Shards


def run_chain(body: Any, _index: int, batches: Iterator[Any]) -> Iterator[Any]:
    for shard, leaves in _shards(batches):
        chain: Chain = Packet(body).open()
        yield _bytes(Row(shard, 0, packed(chain.run(shard, leaves), shard, shards.pickled)))


def scatter(body: Any, _index: int, batches: Iterator[Any]) -> Iterator[Any]:
    for shard, leaves in _shards(batches):
        scattering: Scattering = Packet(body).open()
        for number, outcome in enumerate(scattering.run(shard, leaves)):
            yield _bytes(Row(number, shard, packed(outcome, shard, shards.pickled)))


def adopt(schema: bytes, index: int, batches: Iterator[Any]) -> Iterator[Any]:
    """One Arrow table from all rows of a partition."""
    whole = pa.Table.from_batches(list(batches), pa.ipc.read_schema(pa.py_buffer(schema)))
    yield _bytes(Row(index, 0, shards.pickled(Outcome(whole))))


def tables(_orders: None, _index: int, batches: Iterator[Any]) -> Iterator[Any]:
    for _, (outcome,) in _shards(batches):
        if outcome.failure is not None:
            outcome.failure.raise_()
        yield from outcome.value.to_batches(max_chunksize=shards.chunk_rows(outcome.value))


def _fetched(orders: TaskOrders, number: int) -> tuple[TaskOrders, tuple[Part, ...]] | None:
    """Orders with the function, and an item; nothing where the driver has no use for a result any more."""
    equipped = _equipped(orders)
    try:
        return None if equipped is None else (equipped, read(orders.address, orders.token, number)[0].parts)
    except (EOFError, ConnectionError):
        return None


def _equipped(orders: TaskOrders) -> TaskOrders | None:
    if orders.token not in _function:
        try:
            (function,) = read(orders.address, orders.token, orders.size)
        except (EOFError, ConnectionError):
            return None
        _function.clear()
        _function[orders.token] = function.parts
    # Each task has a copy of its own: it may write to what its function holds.
    return replace(orders, function=tuple(bytearray(part) for part in _function[orders.token]))


def _rows(batches: Iterator[Any]) -> Iterator[Row]:
    for batch in batches:
        shard, place = batch.column(1).to_pylist(), batch.column(2).to_pylist()
        for position, leaf in enumerate(batch.column(3)):
            yield Row(shard[position], place[position], memoryview(leaf.as_buffer()))


def _shards(batches: Iterator[Any]) -> Iterator[tuple[int, list[Outcome]]]:
    """The leaves of the only shard of a partition, in their places; nothing where nobody asks for that shard."""
    rows = sorted(_rows(batches), key=lambda row: row.place)
    if rows:
        yield rows[0].shard, [shards.opened(row.leaf) for row in rows]


def _drain(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def _word(said: str) -> Any:
    values: list[Any] = [said, None, None, None]
    return pa.RecordBatch.from_arrays(
        [pa.array([value], field.type) for value, field in zip(values, _SCHEMA, strict=True)], schema=_SCHEMA
    )


def _bytes(row: Row) -> Any:
    """A batch of one row, whose bytes are not copied."""
    leaf = pa.py_buffer(row.leaf)
    ends = pa.array([0, leaf.size], pa.int32()).buffers()[1]
    data = pa.Array.from_buffers(pa.binary(), 1, [None, ends, leaf])
    numbers = [pa.array([number], pa.int32()) for number in row[:2]]
    return pa.RecordBatch.from_arrays([pa.array([None], pa.string()), *numbers, data], schema=_SCHEMA)
