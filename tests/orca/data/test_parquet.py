"""Parquet files in shards."""

import datetime

import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamline.core.errors import ColumnError
from seamline.orca.data import MixedSchemasError, read_parquet


def together(shards):
    return pd.concat(shards.collect(), ignore_index=True)


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "n": np.arange(100),
            "x": np.linspace(0, 1, 100, dtype=np.float32),
            "text": [f"größe {i}" for i in range(100)],
            "day": pd.date_range("2020-01-01", periods=100, unit="us"),
            "maybe": [None] * 60 + list(range(40)),
            "flag": [True, None] * 50,
            "kind": pd.Categorical(["a", "b"] * 50),
        }
    )


def test_row_groups_are_dealt_out_and_read_as_pandas_reads_the_whole_file(tmp_path, frame):
    table = pa.Table.from_pandas(frame).set_column(4, "maybe", pa.array([None] * 60 + list(range(40)), pa.int64()))
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    expected = pd.read_parquet(tmp_path / "a.parquet")
    for count in (1, 3, 10, 40):
        shards = read_parquet(tmp_path, num_shards=count)
        assert len(shards.collect()) == min(count, 10)
        for shard in shards.collect():
            assert list(shard.dtypes.astype(str)) == list(expected.dtypes.astype(str))
        pd.testing.assert_frame_equal(together(shards), expected)


def test_columns_filters_and_the_index_are_those_of_pandas(tmp_path, frame):
    frame.set_index("text").to_parquet(tmp_path / "a.parquet", row_group_size=30)
    options = {"columns": ["n", "x"], "filters": [("n", ">", 45)]}
    expected = pd.read_parquet(tmp_path / "a.parquet", **options)
    pd.testing.assert_frame_equal(pd.concat(read_parquet(tmp_path, num_shards=3, **options).collect()), expected)


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_other_backends_give_pandas_types_of_theirs(tmp_path, backend):
    pd.DataFrame({"n": [1, 2], "t": ["a", "b"], "f": [True, False]}).to_parquet(tmp_path / "a.parquet")
    expected = pd.read_parquet(tmp_path / "a.parquet", dtype_backend=backend)
    pd.testing.assert_frame_equal(together(read_parquet(tmp_path, dtype_backend=backend)), expected)


def test_folders_of_keys_are_columns(tmp_path):
    for year in (2019, 2020):
        (tmp_path / f"year={year}").mkdir()
        pd.DataFrame({"x": [year / 2]}).to_parquet(tmp_path / f"year={year}" / "part.parquet")
    found = together(read_parquet(tmp_path, num_shards=2))
    assert found.to_dict("list") == {"x": [1009.5, 1010.0], "year": [2019, 2020]}
    assert together(read_parquet(tmp_path, filters=[("year", "=", 2020)]))["x"].tolist() == [1010.0]


def test_files_agree_on_types(tmp_path):
    day = datetime.datetime(2020, 1, 1)
    pq.write_table(pa.table({"a": pa.nulls(2), "t": pa.array([day] * 2, pa.timestamp("s"))}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": pa.array([day], pa.timestamp("ms")), "a": [1]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"a": [2.5], "t": pa.array([day], pa.timestamp("ms"))}), tmp_path / "c.parquet")
    found = read_parquet(tmp_path, num_shards=3).collect()
    assert {tuple(map(str, shard.dtypes)) for shard in found} == {("float64", "datetime64[ms]")}
    assert pd.concat(found)["a"].tolist()[2:] == [1.0, 2.5]


def test_nulls_in_one_row_group_give_all_shards_the_type_that_holds_them(tmp_path):
    table = pa.table({"n": pa.array([1] * 10 + [None] * 10), "f": pa.array([True] * 10 + [None] * 10)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    found = read_parquet(tmp_path, num_shards=2).collect()
    assert [list(map(str, shard.dtypes)) for shard in found] == [["float64", "object"]] * 2


def test_files_that_contradict_each_other_are_named_with_the_column(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "b.parquet")
    with pytest.raises(MixedSchemasError, match=r"column 'a' is int64 in .*/a.parquet and string in .*/b.parquet"):
        read_parquet(tmp_path)
    pq.write_table(pa.table({"b": [1]}), tmp_path / "b.parquet")
    with pytest.raises(MixedSchemasError, match=r"column 'a' of .*/a.parquet is missing in .*/b.parquet"):
        read_parquet(tmp_path)


def test_a_file_without_rows_is_a_shard_without_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64()), "t": pa.array([], pa.string())}), tmp_path / "a.parquet")
    found = together(read_parquet(tmp_path))
    assert (list(found.columns), len(found), str(found["a"].dtype)) == (["a", "t"], 0, "int64")


def test_other_file_systems_work_the_same(frame):
    with fsspec.open("memory://parquet/a.parquet", "wb") as file:
        frame.to_parquet(file, row_group_size=50)
    pd.testing.assert_frame_equal(together(read_parquet("memory://parquet")), frame)


def test_a_wrong_column_and_a_file_of_another_kind_are_named(tmp_path, frame):
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ColumnError, match=r"no column 'texts'; .* \(did you mean 'text'\?\)"):
        read_parquet(tmp_path, columns=["texts"])
    (tmp_path / "b.parquet").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"b.parquet is not a Parquet file"):
        read_parquet(tmp_path)
