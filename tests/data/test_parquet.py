"""Parquet files are read by row group, as they lie."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamline.core.errors import DataError
from tests.data.reading import assert_same_batches
from tests.data.tables import SMALL, batches, values

ROWS = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three files of uneven size, one of them without rows, beside what Spark leaves in such folders."""
    place = tmp_path_factory.mktemp("files")
    for name, low, high in (("a", 0, 180), ("b", 180, 180), ("c", 180, ROWS)):
        table = pa.table({"x": np.arange(low, high), "y": np.arange(low, high) / 2})
        pq.write_table(table, place / f"{name}.parquet", row_group_size=64)
    (place / "_SUCCESS").touch()
    (place / ".c.parquet.crc").touch()
    return place


@pytest.mark.parametrize("form", ["folder", "path", "pattern", "list", "url"])
def test_every_way_to_name_files_reads_their_rows_in_order(folder, form):
    asked = {
        "folder": str(folder),
        "path": Path(folder),
        "pattern": f"{folder}/[a-c].parquet",
        "list": [str(folder / "a.parquet"), folder / "c.parquet"],
        "url": f"file://{folder}",
    }
    np.testing.assert_array_equal(values(asked[form]), np.arange(ROWS))


@pytest.mark.parametrize("memory", [SMALL, 2**20])
def test_any_number_of_workers_reads_the_batches_that_one_reads(folder, memory):
    options = {"shuffle": True, "memory_bytes": memory, "epoch": 1}
    one = batches(str(folder), **options)
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), np.arange(ROWS))
    assert (np.concatenate(one) != np.arange(ROWS)).any()
    for workers in (2, 3):
        assert_same_batches(batches(str(folder), workers, **options), one)


def test_missing_values_are_seen_before_anything_is_read(tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    pq.write_table(pa.table({"x": [1, None, 3], "y": [1.0, 2.0, 3.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [4, None, None], "y": [1.0, 2.0, 3.0]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"column 'x' has missing values \(3 were seen first"):
        values(tmp_path)
    np.testing.assert_array_equal(values(tmp_path, na=0), [1, 0, 3, 4, 0, 0])
    np.testing.assert_array_equal(values(tmp_path, na="drop"), [1, 3, 4])
    np.testing.assert_array_equal(values(tmp_path, ["y"], na="drop"), [1, 2, 3, 1, 2, 3])
    assert list(Path(tempfile.gettempdir()).iterdir()) == []


def test_files_of_different_kinds_are_told_apart(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1.0]}), tmp_path / "b.parquet")
    with pytest.raises(
        DataError, match=r"column 'x' is int64 in .*a.parquet and double in .*b.parquet; write the files"
    ):
        values(tmp_path)
    pq.write_table(pa.table({"z": [1]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"a.parquet has a column 'x' and .*b.parquet has not"):
        values(tmp_path)


def test_what_is_not_there_or_not_parquet_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        values(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no Parquet file in"):
        values(f"{tmp_path}/*.parquet")
    (tmp_path / "text.parquet").write_text("hello")
    with pytest.raises(DataError, match=r"text.parquet cannot be read as Parquet"):
        values(tmp_path)
    pq.write_table(pa.table({"x": pa.array([], pa.int8())}), tmp_path / "text.parquet")
    with pytest.raises(DataError, match="the data has no rows"):
        values(tmp_path)
