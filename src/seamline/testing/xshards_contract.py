"""What XShards owe on every engine, as tests to inherit: pandas' answers for the whole table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from seamline.core.errors import ColumnError, RowsError, ShardError
from seamline.orca import XShards
from seamline.orca.xshards import pieces

WORDS = ["Zürich", "東京", "a", None, "ångström", "b", "東京", "", "🚲", "a"]


def table(rows: int = 37) -> pd.DataFrame:
    """Nulls, unicode, categories, times with and without a zone, and numbers of several kinds."""
    rng = np.random.default_rng(5)
    number = np.arange(rows)
    value = np.round(rng.normal(size=rows), 3)
    value[number % 7 == 3] = np.nan
    times = pd.Series(pd.Timestamp("2024-02-28 23:59:59.123456789") + pd.to_timedelta(number % 11, unit="h"))
    return pd.DataFrame(
        {
            "word": [WORDS[each] for each in rng.integers(0, len(WORDS), rows)],
            "colour": pd.Categorical(
                [[None, "red", "green", "blue"][each] for each in rng.integers(0, 4, rows)],
                categories=["red", "green", "blue", "never"],
            ),
            "time": times.where(number % 5 != 4),
            "zoned": times.dt.tz_localize("Europe/Zurich"),
            "number": rng.integers(-3, 4, rows),
            "small": rng.integers(0, 9, rows).astype(np.int8),
            "value": value,
            "single": value.astype(np.float32),
            "flag": rng.integers(0, 2, rows).astype(bool),
        }
    )


def several() -> tuple[pd.DataFrame, XShards]:
    """Four shards, the second of them without rows."""
    whole = table()
    parts = [whole.iloc[:11], whole.iloc[11:11], whole.iloc[11:31], whole.iloc[31:]]
    return whole, XShards.from_items(parts, _as_it_is)


def one_row() -> tuple[pd.DataFrame, XShards]:
    """Two shards, and a row in the first."""
    return table(1), XShards.partition(table(1), 2)


def _as_it_is(part: Any) -> Any:
    return part


def same(found: Any, expected: pd.DataFrame) -> None:
    """Rows, their order, values and types; floats to the last digits."""
    assert_frame_equal(found, expected.reset_index(drop=True), rtol=1e-12, atol=0)


class XShardsContract:
    """What XShards owe; inherit with a fixture that opens a context."""

    @pytest.fixture(params=[several, one_row])
    def both(self, request: pytest.FixtureRequest) -> tuple[pd.DataFrame, XShards]:
        """A frame, and the same rows in shards."""
        make: Callable[[], tuple[pd.DataFrame, XShards]] = request.param
        return make()

    def test_rows_come_back_as_they_were(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        assert_frame_equal(shards.to_pandas(), frame)
        assert len(shards) == len(frame)
        same(shards.head(3), frame.head(3))
        assert shards.columns == list(frame.columns)

    def test_repartition_is_even_and_keeps_the_order(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        even = shards.repartition(3)
        collected = even.collect()
        assert even.num_partitions() == len(collected) == 3
        sizes = [len(shard) for shard in collected]
        assert max(sizes) - min(sizes) <= 1
        same(pd.concat(collected, ignore_index=True), frame)

    def test_sort_values_is_pandas_stable_sort(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        for by, ascending in ((["word"], False), (["colour", "time", "number"], [True, False, True])):
            same(
                shards.sort_values(by, ascending).to_pandas(), frame.sort_values(by, ascending=ascending, kind="stable")
            )

    def test_group_by_is_that_of_pandas(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        combined = {"value": "mean", "number": "sum", "time": "min", "word": "count", "flag": "any", "small": "last"}
        groups = frame.groupby(["colour"], observed=True)
        same(shards.group_by("colour", combined).to_pandas(), groups.agg(combined).reset_index())
        whole = {"value": "median", "single": "sum", "colour": "nunique", "zoned": "max"}
        groups = frame.groupby(["word", "flag"], observed=True)
        same(shards.group_by(["word", "flag"], whole).to_pandas(), groups.agg(whole).reset_index())

    @pytest.mark.parametrize("how", ["inner", "left", "right", "outer"])
    def test_merge_is_that_of_pandas(self, both: tuple[pd.DataFrame, XShards], how: Any) -> None:
        frame, shards = both
        other = pd.DataFrame(
            {
                "word": ["a", None, "東京", "a", "Ω", "🚲"],
                "colour": pd.Categorical(["red"] * 6),
                "weight": [1, 2, 3, 4, 5, 6],
            }
        )
        found = shards.merge(XShards.partition(other, 2), how=how, on="word")
        expected = frame.merge(other, how=how, on="word")
        parts = found.collect()
        assert len(parts) == found.num_partitions()
        same(pieces.join(parts), expected)

    def test_partition_by_brings_equal_keys_together(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        keys = ["word", "zoned"]
        parts = shards.partition_by(keys, 3).collect()
        assert len(parts) == 3
        seen = [set(map(tuple, part[keys].astype(str).to_numpy().tolist())) for part in parts]
        assert sum(map(len, seen)) == len(set().union(*seen))
        in_one = pd.concat(parts, ignore_index=True)
        by = ["number", "small", "value", "word"]
        same(in_one.sort_values(by, kind="stable", ignore_index=True), frame.sort_values(by, kind="stable"))

    def test_duplicates_go_and_the_first_stay_in_their_place(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        same(shards.deduplicates(["colour", "flag"]).to_pandas(), frame.drop_duplicates(["colour", "flag"]))
        twice = shards.transform_shard(lambda shard: pd.concat([shard, shard]))
        same(twice.deduplicates().to_pandas(), frame.drop_duplicates())

    def test_what_is_said_of_a_table_is_what_pandas_says(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        assert_frame_equal(shards.describe(), frame.describe(), rtol=1e-12, atol=0)
        assert shards.max_values("number") == frame["number"].max()
        ordered = ["time", "small", "value"]
        assert shards.min_values(ordered).to_list()[1:] == frame[ordered].min().to_list()[1:]
        assert dict(zip(*shards.get_null_sum().to_numpy().T.tolist(), strict=True)) == frame.isna().sum().to_dict()
        found = pd.Series(shards["word"].unique())
        assert found.equals(pd.Series(frame["word"].unique()))

    def test_columns_rows_and_features_are_chosen(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        same(shards.select("flag", "time").to_pandas(), frame[["flag", "time"]])
        same(shards[["value"]].drop_missing_value().to_pandas(), frame[["value"]].dropna())
        assembled = shards.assembleFeatureLabelCols(["small", "single"], ["flag"]).to_pandas()
        np.testing.assert_array_equal(assembled["x"], frame[["small", "single"]].to_numpy(np.float32))
        np.testing.assert_array_equal(assembled["y"], frame["flag"])

    def test_chance_is_the_same_everywhere(self, both: tuple[pd.DataFrame, XShards]) -> None:
        frame, shards = both
        train, test = shards.split([0.7, 0.3], seed=3)
        drawn = np.random.Generator(np.random.Philox(key=3)).random(len(frame))
        same(train.to_pandas(), frame[drawn < 0.7])
        same(test.to_pandas(), frame[drawn >= 0.7])
        sample = shards.sample(0.5, seed=1).to_pandas()
        assert len(sample) == round(0.5 * len(frame))

    def test_saved_shards_are_loaded_as_they_were(self, both: tuple[pd.DataFrame, XShards], tmp_path: Path) -> None:
        frame, shards = both
        shards.save(tmp_path / "saved")
        loaded = XShards.load(tmp_path / "saved")
        assert loaded.num_partitions() == shards.num_partitions()
        same(loaded.to_pandas(), frame)

    def test_arrays_nests_and_objects_are_shards_too(self, tmp_path: Path) -> None:
        nest = {"x": [np.arange(14).reshape(7, 2), np.ones((7, 0, 3), np.float32)], "y": (np.arange(7, dtype="i1"),)}
        shards = XShards.partition(nest, 3)
        doubled = shards.transform_shard(lambda shard: {**shard, "y": (shard["y"][0] * 2,)}).repartition(2)
        whole = doubled.to_pandas()
        np.testing.assert_array_equal(whole["y"][0], np.arange(7) * 2)
        assert whole["x"][1].shape == (7, 0, 3)
        doubled.save(tmp_path / "nest", format="arrow")
        loaded = XShards.load(tmp_path / "nest").to_pandas()
        np.testing.assert_array_equal(loaded["x"][0], nest["x"][0])
        assert loaded["x"][1].shape == (7, 0, 3)
        assert loaded["y"][0].dtype == np.int8
        words = XShards.partition(["a", "b", "c"], 2)
        assert words.collect() == [["a", "b"], ["c"]]
        assert words.transform_shard("".join).collect() == ["ab", "c"]
        assert len(words.transform_shard("".join)) == 2

    def test_zip_pairs_rows_and_split_undoes_it(self) -> None:
        numbers, words = XShards.partition(np.arange(5), 2), XShards.partition(list("abcde"), 2)
        pairs = numbers.zip(words)
        assert pairs.first()[1] == ["a", "b", "c"]
        left, right = pairs.transform_shard(lambda pair: (pair[0] + 1, pair[1])).split()
        np.testing.assert_array_equal(left.to_pandas(), np.arange(1, 6))
        assert right.to_pandas() == list("abcde")
        with pytest.raises(RowsError, match="parts of shard 0 have 2 and 3 rows"):
            pairs.transform_shard(lambda pair: (pair[0][1:], pair[1])).collect()

    def test_a_failing_transform_names_shard_and_rows(self) -> None:
        def parse(shard: Any) -> Any:
            return shard.assign(number=shard["word"].astype(float))

        words = pd.DataFrame({"word": ["1", "2", "3", "x", "5", "6"]})
        with pytest.raises(ShardError, match=r"parse failed on shard 1 \(rows 2 to 3\)"):
            XShards.partition(words, 3).transform_shard(parse).sort_values("number").collect()
        with pytest.raises(ColumnError, match=r"no column 'wordd'; there are 'word' \(did you mean 'word'\?\)"):
            XShards.partition(words, 3).group_by("wordd", "sum").collect()
