"""XShards in one process: laziness, caching, files, other libraries' tables, and errors that say what to do."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from seamline.core.errors import ColumnError, RowsError, SeamlineError, ShardError, UnpicklableError
from seamline.orca import XShards, init_orca_context

FRAME = pd.DataFrame({"key": ["b", "a", "b", None], "value": [1, 2, 3, 4]})


def test_the_papers_figure_10_runs_as_it_stands():
    shards = XShards.partition(FRAME, 2)

    def negative(df, column_name):
        df[column_name] = df[column_name] * (-1)  # pandas code
        return df

    train_shards = shards.transform_shard(negative, "value")
    for _ in range(2):
        assert train_shards.to_pandas()["value"].to_list() == [-1, -2, -3, -4]
    assert shards.to_pandas()["value"].to_list() == [1, 2, 3, 4]
    assert FRAME["value"].to_list() == [1, 2, 3, 4]


def counted(calls, value):
    calls.append(value)
    return value


def test_functions_run_when_a_result_is_wanted_and_only_then():
    calls = []
    shards = XShards.from_items([1, 2, 3], lambda item: counted(calls, item))
    doubled = shards.transform_shard(lambda shard, factor: shard * factor, factor=2)
    assert calls == []
    assert doubled.first() == 2
    assert calls == [1]
    assert doubled.take(2) == [2, 4]
    assert doubled.num_partitions() == 3
    assert calls == [1, 1, 2]


def test_wide_operations_compute_what_comes_before_them_once():
    calls = []
    shards = XShards.partition(FRAME, 2).transform_shard(lambda shard: counted(calls, shard))
    ordered = shards.sort_values("value", ascending=False)
    assert calls == []
    assert ordered.to_pandas()["value"].to_list() == [4, 3, 2, 1]
    assert len(calls) == 2


def test_cached_shards_are_computed_once_until_they_are_given_up():
    calls = []
    shards = XShards.from_items([1, 2], lambda item: counted(calls, item)).cache()
    later = shards.transform_shard(lambda shard: shard + 1)
    assert calls == []
    assert shards.collect() == [1, 2]
    assert later.collect() == [2, 3]
    assert calls == [1, 2]
    assert shards.uncache() is shards
    assert shards.collect() == [1, 2]
    assert calls == [1, 2, 1, 2]


def test_partition_divides_evenly_and_may_leave_shards_empty():
    assert [len(shard) for shard in XShards.partition(np.arange(7), 3).collect()] == [3, 2, 2]
    assert [len(shard) for shard in XShards.partition(FRAME, 6).collect()] == [1, 1, 1, 1, 0, 0]
    assert len(XShards.partition(FRAME.iloc[:0], 2)) == 0
    assert XShards.partition(FRAME.iloc[:0], 2).group_by("key", "sum").to_pandas().columns.to_list() == ["key", "value"]


def test_files_are_shards_in_the_order_of_their_names(tmp_path):
    for name in "cab":
        (tmp_path / f"{name}.txt").write_text(name)
    (tmp_path / "_SUCCESS").touch()

    def read(path):
        return Path(path).read_text()

    for paths in (tmp_path, str(tmp_path / "*.txt"), [str(tmp_path / f"{name}.txt") for name in "abc"]):
        assert XShards.from_files(paths, read).collect() == ["a", "b", "c"]
    with pytest.raises(FileNotFoundError, match=r"no file at '.*nothing'; give a path, a folder"):
        XShards.from_files(tmp_path / "nothing", read)


@pytest.mark.parametrize("make", [pl.DataFrame, pa.Table.from_pylist], ids=["polars", "arrow"])
def test_tables_of_other_libraries_stay_what_they_are(make):
    rows = [{"key": "b", "value": 1}, {"key": "a", "value": 2}, {"key": "b", "value": 3}]
    shards = XShards.partition(make(rows), 2)
    kind = type(make(rows))
    assert all(isinstance(shard, kind) for shard in shards.repartition(3).collect())
    total = shards.group_by("key", {"value": "sum"})
    assert all(isinstance(shard, kind) for shard in total.collect())
    assert total.to_pandas().to_pandas().to_dict("list") == {"key": ["a", "b"], "value": [2, 4]}
    assert list(shards.sort_values("value", ascending=False).head(1).to_pandas()["value"]) == [3]
    assert shards.select("value").columns == ["value"]
    assert len(shards.split([0.5, 0.5])[0]) + len(shards.split([0.5, 0.5])[1]) == 3


def test_shards_agree_on_types_before_rows_move():
    parts = [
        pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["x", "y"]), "c": [None, None]}),
        pd.DataFrame({"a": [None, 2.5], "b": pd.Categorical(["z", "x"]), "c": ["text", None]}),
        pd.DataFrame({"a": pd.Series([], dtype=object), "b": pd.Series([], dtype=object), "c": []}),
        pd.DataFrame({"a": [None, None], "b": pd.Categorical(["x", "x"]), "c": ["t", "u"]}),
    ]
    shards = XShards.from_items(parts, lambda part: part).sort_values("a")
    found = shards.to_pandas()
    assert found["a"].dtype == np.float64
    assert found["a"].dropna().to_list() == [1.0, 2.0, 2.5]
    assert found["b"].to_list() == ["x", "y", "x", "z", "x", "x"]
    assert list(found["b"].cat.categories) == ["x", "y", "z"]
    assert found["c"].dropna().to_list() == ["text", "t", "u"]
    assert found["c"].dtype == pd.Series(["text"]).dtype


def test_aggregates_are_named_as_asked():
    shards = XShards.partition(FRAME, 2)
    found = shards.group_by("key", {"value": ["min", "max"], "spread": ("value", np.ptp)}).to_pandas()
    assert found.to_dict("list") == {"key": ["a", "b"], "value_min": [2, 1], "value_max": [2, 3], "spread": [0, 2]}
    assert shards.group_by("key", ["size", "mean"]).to_pandas().to_dict("list") == {
        "key": ["a", "b"],
        "value_size": [1, 2],
        "value_mean": [2.0, 2.0],
    }


def test_keys_of_different_types_and_names_meet():
    left = XShards.partition(pd.DataFrame({"a": [1, 2, 3], "x": [1, 1, 1]}), 2)
    right = pd.DataFrame({"b": [3.0, 1.0, None, 3.0], "x": [5, 6, 7, 8]})
    found = left.merge(XShards.partition(right, 3), how="left", left_on="a", right_on="b").to_pandas()
    assert_frame_equal(found, left.to_pandas().merge(right, how="left", left_on="a", right_on="b"))


def test_a_sum_of_floats_is_within_the_last_digits_for_any_number_of_shards():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"key": rng.integers(0, 9, 5000), "value": rng.normal(size=5000)})
    expected = frame.groupby("key").agg({"value": "mean"}).reset_index()
    for count in (1, 7):
        found = XShards.partition(frame, count).group_by("key", {"value": "mean"}).to_pandas()
        assert_frame_equal(found, expected, rtol=1e-12, atol=1e-15)


def test_chance_by_row_does_not_depend_on_the_number_of_shards():
    frame = pd.DataFrame({"row": np.arange(1000)})
    parts = {
        count: [part.to_pandas()["row"].to_list() for part in XShards.partition(frame, count).split([0.8, 0.2], seed=1)]
        for count in (1, 3, 8)
    }
    assert parts[1] == parts[3] == parts[8]
    assert sorted(parts[1][0] + parts[1][1]) == list(range(1000))
    assert 750 < len(parts[1][0]) < 850


def test_a_sample_has_as_many_rows_as_pandas_would_take():
    shards = XShards.partition(pd.DataFrame({"row": np.arange(101)}), 4)
    once = shards.sample(0.3, seed=2).to_pandas()["row"].to_list()
    assert len(once) == len(set(once)) == 30
    assert once == sorted(once)
    assert shards.sample(0.3, seed=2).to_pandas()["row"].to_list() == once
    assert len(shards.sample(2.0, replace=True, seed=2)) == 202
    with pytest.raises(ValueError, match=r"frac must be from 0 to 1.*got frac=1.5"):
        shards.sample(1.5).collect()


# Errors


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda s: s.select("valuee").collect(), ColumnError, r"no column 'valuee'; .*did you mean 'value'\?"),
        (lambda s: s.merge(s, on="kye").collect(), ColumnError, r"no column 'kye'; .*did you mean 'key'\?"),
        (lambda s: s.sort_values("valux").collect(), ColumnError, r"no column 'valux'; .*did you mean 'value'\?"),
        (lambda s: s.merge(s, how="cross"), ValueError, "how must be one of inner, left, right, outer"),
        (lambda s: s.merge(s, left_on="key"), ValueError, "give on=, or left_on= and right_on="),
        (lambda s: s.sort_values("key", [True, False]).collect(), ValueError, "ascending has 2 values for 1 columns"),
        (lambda s: s.zip(s.repartition(3)), ValueError, "2 and 3 shards cannot be zipped; repartition one of them"),
        (lambda s: s.zip(FRAME), TypeError, "zip takes XShards, but got DataFrame"),
        (lambda s: s.repartition(0), ValueError, "num_shards must be a whole number of at least 1"),
        (lambda s: s.split(), RowsError, r"shard 0 is a DataFrame; for a split by chance.*split\(\[0.8, 0.2\]\)"),
        (lambda s: s.split([0.5, 0.2]), ValueError, "fractions must be positive and sum to 1"),
        (lambda s: s.unique(), ColumnError, r"unique is for one column.*write shards\['a'\].unique\(\)"),
        (lambda s: s.group_by("key", {}).collect(), ValueError, "there is nothing to aggregate"),
        (lambda s: s.transform_shard(len).repartition(2).collect(), RowsError, "a int has no rows"),
        (lambda s: s.transform_shard(len).columns, ColumnError, "a shard of type int has no columns"),
        (lambda s: s.transform_shard(len).sort_values("a").collect(), ColumnError, "make it a DataFrame by"),
        (lambda s: s.transform_shard(len).save("/tmp/never"), SeamlineError, "a shard of type int cannot be saved"),
        (lambda s: XShards.from_items([], len), ValueError, "there are no items to make shards of"),
        (lambda s: XShards.partition(5, 2), RowsError, "a int has no rows that could be divided"),
        (lambda s: XShards.partition({"x": np.ones(3), "y": np.ones(2)}), RowsError, r"\['x'\]: 3, \['y'\]: 2"),
    ],
)
def test_an_error_says_what_to_do(ask, error, message):
    with pytest.raises(error, match=message):
        ask(XShards.partition(FRAME, 2))


def test_ragged_columns_and_mixed_shards_are_named():
    ragged = XShards.partition(pd.DataFrame({"a": [[1, 2], [3]], "b": [0, 1]}), 1)
    with pytest.raises(ColumnError, match="column 'a' is ragged: its lists have 1 to 2 items; pad them"):
        ragged.assembleFeatureLabelCols(["a", "b"], "b").collect()
    square = XShards.partition(pd.DataFrame({"a": [[1, 2], [3, 4]], "b": [0, 1]}), 1)
    np.testing.assert_array_equal(square.assembleFeatureLabelCols(["a", "b"]).first()["x"], [[1, 2, 0], [3, 4, 1]])
    mixed = XShards.from_items(["a", "b"], lambda name: pd.DataFrame({name: [1]}))
    with pytest.raises(ColumnError, match="shard 1 has the columns 'b', but others have 'a'"):
        mixed.sort_values("a").collect()


def test_a_failure_after_rows_were_dropped_counts_the_rows_that_the_function_saw():
    def fail(shard):
        if 3 in shard["value"].to_list():
            raise ArithmeticError("odd")
        return shard

    shards = XShards.partition(FRAME, 2).transform_shard(lambda shard: shard.iloc[1:]).transform_shard(fail)
    with pytest.raises(ShardError) as caught:
        XShards.partition(FRAME, 2).transform_shard(fail).collect()
    assert str(caught.value).startswith("fail failed on shard 1 (rows 2 to 3).")
    assert len(shards) == 2


def test_shards_of_a_context_that_was_stopped_say_so_and_shards_do_not_travel():
    with init_orca_context("local", cores=1):
        shards = XShards.partition(FRAME, 2)
        assert len(shards) == 4
        with pytest.raises(UnpicklableError, match=r"XShards cannot travel to shards.*zip or merge the two"):
            shards.transform_shard(lambda shard: len(shards)).collect()
    with pytest.raises(SeamlineError, match=re.escape("the context that these shards lie in was stopped")):
        shards.collect()


def test_a_folder_that_is_not_ours_is_not_replaced(tmp_path):
    (tmp_path / "precious").mkdir()
    shards = XShards.partition(FRAME, 2)
    with pytest.raises(SeamlineError, match="exists and was not saved by Seamline"):
        shards.save(tmp_path / "precious")
    with pytest.raises(ValueError, match="no format 'pickle'; there are parquet, arrow"):
        shards.save(tmp_path / "saved", format="pickle")
    with pytest.raises(FileNotFoundError, match="there are no saved shards at"):
        XShards.load(tmp_path / "saved")
    shards.save(tmp_path / "saved")
    shards.transform_shard(lambda shard: shard.iloc[:1]).save(tmp_path / "saved", format="arrow")
    assert len(XShards.load(tmp_path / "saved")) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["precious", "saved"]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_shards_are_saved_to_any_file_system_and_replaced_at_once(tmp_path, format):
    nest = {"x": np.arange(12.0).reshape(4, 3), "y": np.arange(4)}
    for url in (f"memory://{tmp_path.name}/saved", f"file://{tmp_path}/saved"):
        XShards.partition(FRAME, 3).save(url, format=format)
        assert_frame_equal(XShards.load(url).to_pandas(), FRAME)
        with pytest.raises(ShardError, match="by zero"):
            XShards.partition(FRAME, 3).transform_shard(lambda shard: shard[: 1 // (len(shard) - 1)]).save(url)
        assert_frame_equal(XShards.load(url).to_pandas(), FRAME)
        XShards.partition(nest, 2).save(url, format=format)
        np.testing.assert_array_equal(XShards.load(url).to_pandas()["x"], nest["x"])
    assert sorted(path.suffix for path in (tmp_path / "saved").iterdir()) == sorted([".json", *[f".{format}"] * 2])
    assert len(XShards.load(tmp_path / "saved")) == 4
    with pytest.raises(FileNotFoundError, match="there are no saved shards at memory://"):
        XShards.load("memory://nowhere/saved")


def test_what_was_not_saved_to_its_end_leaves_nothing(tmp_path):
    mixed = XShards.from_items([1, 2], lambda number: np.ones(2) if number == 1 else [np.ones(2)])
    with pytest.raises(SeamlineError, match="shards of different structures cannot be saved together"):
        mixed.save(tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
