"""A worker's memory is bounded by its buffer, however many rows there are."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamline.core import registry
from seamline.core.shards import Columns, Reading, put_away
from seamline.engines.local import LocalEngine

NAMES = [f"f{n}" for n in range(8)]
PIECE = 100_000


def generated(rows):
    """Rows that never exist all at once."""
    schema = pa.schema([(name, pa.float32()) for name in NAMES])

    def make():
        for first in range(0, rows, PIECE):
            numbers = np.arange(first, min(rows, first + PIECE), dtype=np.float32)
            yield pa.record_batch([numbers] * len(NAMES), schema=schema)

    return pa.RecordBatchReader.from_batches(schema, make())


def peak_while_reading(world, shard):
    """How many bytes more than before this process has held, and how many rows it has read."""
    import torch

    def resident(name):
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024

    torch.ones(1).sum()
    import pandas  # noqa: F401  (pyarrow brings it along when it first makes an array)
    import pyarrow.parquet  # noqa: F401

    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    rows, total = 0, 0.0
    for batch in shard.batches(0):
        rows += batch.rows
        total += float(torch.from_numpy(batch.inputs)[:, 0].double().sum())
    return resident("VmHWM") - before, rows, total


@pytest.mark.parametrize(
    ("kind", "buffer", "times", "workers", "shuffle"),
    [
        ("stream", 24 * 2**20, 20, 1, True),
        ("stream", 24 * 2**20, 20, 2, False),
        ("parquet", 64 * 2**20, 6, 2, True),  # decoding takes 40 MB of its own, whatever the rows
    ],
    ids=["shuffled", "in order", "Parquet"],
)
def test_rows_of_many_buffers_are_read_within_one_and_a_half(tmp_path, kind, buffer, times, workers, shuffle):
    rows = times * buffer // 32
    data = generated(rows)
    if kind == "parquet":
        with pq.ParquetWriter(tmp_path / "rows.parquet", data.schema) as writer:
            for batch in data:
                writer.write_batch(batch)
        data = tmp_path / "rows.parquet"
    shards = registry.shards(data, Columns(features=[NAMES]))
    try:
        reading = Reading(batch_size=4096, shuffle=shuffle, memory_bytes=buffer)
        answers = LocalEngine().run(peak_while_reading, shards.split(workers, reading))
    finally:
        put_away(shards)
    assert sum(read for _, read, _ in answers) == rows
    assert sum(total for *_, total in answers) == pytest.approx(rows * (rows - 1) / 2, rel=1e-9)
    for peak, *_ in answers:
        assert peak <= 1.5 * buffer, f"{peak / 2**20:.0f} MB held for a buffer of {buffer / 2**20:.0f} MB"
