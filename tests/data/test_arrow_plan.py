"""The order of rows that are read window by window: every row once, and the same batches for any number of workers."""

import numpy as np
import pyarrow as pa
import pytest

from seamline.core.errors import DataError
from seamline.core.ledger import Ledger
from seamline.core.shards import Columns, Reading
from seamline.data.arrow.blocks import Blocks
from seamline.data.arrow.chunks import IpcChunk, TableChunk
from seamline.data.arrow.layout import Layout
from seamline.data.arrow.plan import shared_out
from seamline.data.arrow.shards import ArrowShard
from tests.data.reading import assert_same_batches
from tests.data.tables import opened

ROWS = 1003
SIZES = (0, 400, 3, 0, 600)
LITTLE = 3 * 100 * (16 + 4)
"""Memory for windows of 100 rows of 16 bytes."""


def written(folder, sizes=SIZES, block=64):
    """Chunks as files of small record batches; column ``n`` counts the rows through."""
    chunks, first = [], 0
    for number, size in enumerate(sizes):
        table = pa.table({"n": np.arange(first, first + size), "x": np.arange(first, first + size) / 2})
        path = folder / f"{number}.arrow"
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=block)
        blocks = [len(batch) for batch in table.to_batches(max_chunksize=block)]
        chunks.append(IpcChunk(str(path), tuple(blocks), f"host-{number}"))
        first += size
    return chunks


def shards(chunks, workers, memory=LITTLE, **options):
    reading = Reading(**{"batch_size": 24, "shuffle": True, "memory_bytes": memory, "seed": 5, **options})
    example = pa.record_batch({"n": [0], "x": [0.0]})
    layout = Layout.of(example, Columns(features=["x"], labels=["n"]))
    return [ArrowShard(tuple(chunks), layout, reading, worker, workers) for worker in range(workers)]


def whole(all_shards, epoch=0, first_step=0):
    """The row numbers of each batch as all workers together read it, checked on the way."""
    batches, ledger = [], Ledger()
    for parts in zip(*(shard.batches(epoch, first_step) for shard in all_shards), strict=True):
        assert sum(part.rows for part in parts) == parts[0].batch_rows
        for part in parts:
            np.testing.assert_array_equal(part.inputs, part.targets / 2)
            assert len(part.inputs) == max(1, part.rows), "a worker without rows needs one that counts for nothing"
        ledger.add([(epoch, part.start, part.start + part.rows) for part in parts])
        batches.append(np.concatenate([part.targets[: part.rows] for part in parts]))
    return batches, ledger


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("memory", [1, LITTLE, 10**6], ids=["a batch at a time", "windows", "all in memory"])
def test_any_number_of_workers_reads_the_batches_that_one_reads(tmp_path, workers, shuffle, memory):
    chunks = written(tmp_path)
    one, ledger = whole(shards(chunks, 1, memory, shuffle=shuffle), epoch=2)
    ledger.check(ROWS)
    assert [len(batch) for batch in one] == [24] * 41 + [19]
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), np.arange(ROWS))
    if not shuffle:
        np.testing.assert_array_equal(np.concatenate(one), np.arange(ROWS))
    several, ledger = whole(shards(chunks, workers, memory, shuffle=shuffle), epoch=2)
    ledger.check(ROWS)
    assert_same_batches(several, one)
    for step in (1, 3, 4, 5, 17, 41):
        rest, _ = whole(shards(chunks, workers, memory, shuffle=shuffle), epoch=2, first_step=step)
        assert_same_batches(rest, one[step:])


def test_orders_differ_between_epochs_and_seeds_and_are_spread_over_the_window(tmp_path):
    chunks = written(tmp_path)
    first, second = (np.concatenate(whole(shards(chunks, 2), epoch=epoch)[0]) for epoch in (0, 1))
    other = np.concatenate(whole(shards(chunks, 2, seed=6))[0])
    assert (first != second).any()
    assert (first != other).any()
    batches, _ = whole(shards(chunks, 1, memory=100 * LITTLE))
    assert all(batch.min() < 300 and batch.max() > 700 for batch in batches), (
        "a batch comes from one corner of the data"
    )


def test_shuffled_windows_are_not_in_order_within_a_lane(tmp_path):
    batches, _ = whole(shards(written(tmp_path), 1, memory=100 * LITTLE))
    lanes = np.stack(batches[:-1], axis=1)
    assert sum((np.diff(lane) > 0).all() for lane in lanes) == 0


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_in_order_are_read_once_with_their_numbers(tmp_path, workers):
    parts = []
    for shard in shards(written(tmp_path), workers, every_row_in_order=True, shuffle=False):
        batches = list(shard.batches(0))
        parts += [(batch.start, batch.targets[: batch.rows]) for batch in batches]
        assert len(batches) <= shard.steps
    for start, numbers in parts:
        np.testing.assert_array_equal(numbers, np.arange(start, start + len(numbers)))
    assert sum(len(numbers) for _, numbers in parts) == ROWS


class Worlds:
    """What each of several workers would gather, where the test says what they see."""

    def __init__(self, rank, seen):
        self.rank, self.seen = rank, seen

    def all_gather(self, _):
        return self.seen


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    "seen",
    [
        [[0, 1], [2, 3, 4]],
        [[0, 1, 2], [0, 1, 2], [3, 4]],
        [[0, 1, 2, 3, 4], [4]],
        [[1], [0, 2, 3], [], [0, 2, 4]],
    ],
    ids=["two machines", "two workers on one", "one sees more", "a worker without rows"],
)
def test_workers_that_see_different_files_read_every_row_once(tmp_path, seen, shuffle):
    chunks = written(tmp_path)
    met = [shard.meet(Worlds(n, seen)) for n, shard in enumerate(shards(chunks, len(seen), shuffle=shuffle))]
    assert {shard.steps for shard in met} == {42}
    batches, ledger = whole(met, epoch=1)
    ledger.check(ROWS)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(ROWS))
    rest, _ = whole(met, epoch=1, first_step=17)
    assert_same_batches(rest, batches[17:])
    in_order = [
        shard.meet(Worlds(n, seen))
        for n, shard in enumerate(shards(chunks, len(seen), shuffle=False, every_row_in_order=True))
    ]
    pieces = sorted((b.start, list(b.targets)) for shard in in_order for b in shard.batches(0))
    assert [number for _, numbers in pieces for number in numbers] == list(range(ROWS))


def test_workers_that_see_everything_share_everything(tmp_path):
    (one,) = shards(written(tmp_path), 1)
    assert one.meet(Worlds(0, [[0, 1, 2, 3, 4]])) is one


def test_rows_that_no_worker_sees_are_an_error_that_says_what_to_do(tmp_path):
    chunks = written(tmp_path)
    with pytest.raises(DataError, match="lie on host-4, where no worker can read them; say cache_dir="):
        shards(chunks, 2)[0].meet(Worlds(0, [[0, 1], [2, 3]]))


def test_a_file_that_is_gone_is_not_visible(tmp_path):
    chunk = written(tmp_path, sizes=[5])[0]
    assert chunk.visible()
    (tmp_path / "0.arrow").unlink()
    assert not chunk.visible()


@pytest.mark.parametrize("rows", [[5, 0, 8], [1, 1, 1, 1], [10**6, 3], [7]])
def test_shares_are_whole_and_never_shrink(rows):
    total = sum(rows)
    before = [0] * len(rows)
    for taken in [*range(min(total, 200) + 1), total]:
        shares = shared_out(taken, rows)
        assert sum(shares) == taken
        assert all(a <= b <= most for a, b, most in zip(before, shares, rows, strict=True))
        before = shares
    assert before == rows


def test_tables_in_memory_are_blocks_too():
    table = pa.table({"n": np.arange(200_000), "x": np.arange(200_000) / 2})
    chunks = [TableChunk(table.slice(0, 70_000)), TableChunk(table.slice(70_000))]
    assert Blocks.of(chunks).rows == 200_000
    batches, ledger = whole(shards(chunks, 2, memory=10**6, batch_size=1000))
    ledger.check(200_000)
    np.testing.assert_array_equal(np.sort(np.concatenate(batches)), np.arange(200_000))


def test_a_batch_that_is_kept_stays_as_it_was(tmp_path):
    (one,) = shards(written(tmp_path), 1)
    kept, copies = [], []
    for batch in one.batches(0):
        kept.append(batch.targets)
        copies.append(batch.targets.copy())
    assert_same_batches(kept, copies)


def test_windows_are_no_longer_than_rows_need_to_mix():
    rows = pa.table({"x": np.zeros(3_000_000, np.int8)})

    def window(batch_size, memory=2**24):
        with opened(rows, batch_size=batch_size, shuffle=True, memory_bytes=memory) as (shard,):
            return shard.window_steps

    fitting = 2**24 // 3 // (1 + 4)
    assert fitting > 2**20
    assert window(1024) == 1024
    assert window(100_000) == fitting // 100_000, "a window has 16 batches where they fit"
    assert window(1024, memory=2**20) == 2**20 // 3 // (1 + 4) // 1024
