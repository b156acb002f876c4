"""What Spark's Python processes do with shards."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamline.core import pickling
from seamline.core.chain import Chain, Outcome, Scattering, packed
from seamline.core.packet import Packet
from seamline.engines.spark import broadcast

STREAM_BYTES = 4 << 20
"""Arrow data in one record: the JVM has several copies of it at a time."""

_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def opened(leaf: Any) -> Outcome:
    """A leaf is bytes where it has travelled, and the outcome itself where the same process has made it."""
    outcome: Outcome = leaf if isinstance(leaf, Outcome) else pickle.loads(leaf)
    return outcome


def run_chain(body: Any, index: int, part: Iterator[Any]) -> Iterator[Any]:
    broadcast.forget_released()
    chain: Chain = Packet(body).open()
    for record in part:
        if isinstance(record, str):
            yield record
            continue
        outcome = chain.run(index, [opened(leaf) for leaf in _flat(record)])
        yield (packed(outcome, index, pickled),)


def scatter_pieces(body: Any, index: int, part: Iterator[Any]) -> Iterator[Any]:
    """Pairs of the number of a new shard, and where a piece for it comes from with the piece."""
    broadcast.forget_released()
    scattering: Scattering = Packet(body).open()
    for record in part:
        outcomes = scattering.run(index, [opened(leaf) for leaf in _flat(record)])
        for number, outcome in enumerate(outcomes):
            yield number, (index, packed(outcome, index, pickled))


def leaves(count: int, _index: int, part: Iterator[Any]) -> Iterator[Any]:
    """The pieces that have come together for one shard, in the order of where they come from."""
    found = dict(piece for _, piece in part)
    yield tuple(found[number] for number in range(count))


def read_streams(schema: bytes, _index: int, part: Iterator[Any]) -> Iterator[Any]:
    """One Arrow table from all streams of a partition."""
    tables = [pa.ipc.open_stream(pa.py_buffer(row[0])).read_all() for row in part]
    empty = pa.ipc.read_schema(pa.py_buffer(schema)).empty_table()
    yield (Outcome(pa.concat_tables(tables) if tables else empty),)


def write_streams(_orders: None, index: int, part: Iterator[Any]) -> Iterator[Any]:
    for record in part:
        outcome = opened(record[0])
        if outcome.failure is not None:
            outcome.failure.raise_()
        for batch in outcome.value.to_batches(max_chunksize=chunk_rows(outcome.value)):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield (bytearray(sink.getvalue()),)


def to_streams(batches: Iterator[Any]) -> Iterator[Any]:
    # Self-contained, as it travels by value: our package is found only once other code of ours has run.
    import pyarrow

    def stream(held: list[Any]) -> Any:
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, held[0].schema) as writer:
            for batch in held:
                writer.write_batch(batch)
        buffer = sink.getvalue()
        ends = pyarrow.array([0, buffer.size], pyarrow.int32()).buffers()[1]
        data = pyarrow.Array.from_buffers(pyarrow.binary(), 1, [None, ends, buffer])
        return pyarrow.RecordBatch.from_arrays([data], ["stream"])

    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if sum(each.nbytes for each in held) >= 4 << 20:
            yield stream(held)
            held = []
    if held:
        yield stream(held)


def from_streams(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow

    for batch in batches:
        for data in batch.column(0):
            yield from pyarrow.ipc.open_stream(data.as_buffer())


to_streams.__module__ = from_streams.__module__ = "__main__"  # functions of that module are pickled by value


@dataclass(frozen=True, slots=True)
class Cast:
    """Brings a table to a schema."""

    schema: bytes

    def __call__(self, _index: int, table: Any) -> Any:
        return table.cast(pa.ipc.read_schema(pa.py_buffer(self.schema)))


def plain_schema(schema: Any) -> Any:
    """The same columns in types that Spark has: no dictionaries, no unsigned numbers, microseconds."""
    return pa.schema([pa.field(field.name, _plain(field.type), field.nullable) for field in schema])


def _plain(kind: Any) -> Any:
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_null(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return _WIDER.get(kind, pa.float32() if pa.types.is_float16(kind) else kind)


def chunk_rows(table: Any) -> int:
    return max(1, int(table.num_rows * STREAM_BYTES / max(table.nbytes, STREAM_BYTES)))


def _flat(record: Any) -> Iterator[Any]:
    """The leaves of nested pairs, as Spark zips them."""
    for each in record:
        if isinstance(each, tuple):
            yield from _flat(each)
        else:
            yield each


def pickled(outcome: Outcome, what: str = "the result") -> bytes:
    """A leaf as it travels."""
    return pickling.dumps(outcome, what)
