"""JSON files in shards."""

import gzip
import json

import pandas as pd
import pytest

from seamline.orca.data import BadRowError, DroppedRowsWarning, read_json


def write_lines(path, records):
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records), encoding="utf-8")
    return path


def together(shards):
    return pd.concat(shards.collect(), ignore_index=True)


def test_lines_are_cut_and_read_as_pandas_reads_the_whole_file(tmp_path):
    records = [{"n": i, "text": f"zwei\nZeilen 🙂 {i}", "x": i / 2, "list": [i, i]} for i in range(100)]
    path = write_lines(tmp_path / "a.jsonl", records)
    expected = pd.read_json(path, lines=True)
    for count in (1, 3, 8):
        shards = read_json(path, num_shards=count)
        assert len(shards.collect()) == count
        pd.testing.assert_frame_equal(together(shards), expected)


def test_keys_that_come_late_or_not_at_all_are_null_as_in_pandas(tmp_path):
    records = [{"a": 1}] * 20 + [{"a": 2, "b": 3}] * 20 + [{"a": None, "c": "x"}] * 20 + [{"d": True}]
    path = write_lines(tmp_path / "a.jsonl", records)
    expected = pd.read_json(path, lines=True)
    for count in (2, 5):
        found = read_json(path, num_shards=count)
        assert len({tuple(map(str, shard.dtypes)) for shard in found.collect()}) == 1
        pd.testing.assert_frame_equal(together(found), expected)


def test_files_that_are_one_array_stay_whole(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.json").write_text(json.dumps([{"a": number, "b": "x"}] * 3))
    found = read_json(tmp_path, num_shards=4)
    assert together(found)["a"].tolist() == [0, 0, 0, 1, 1, 1]
    assert [len(shard) for shard in found.collect()] == [3, 3]


def test_pandas_options_and_compression_go_through(tmp_path):
    with gzip.open(tmp_path / "a.ndjson.gz", "wt") as file:
        file.write('{"a": "1"}\n{"a": "2"}\n')
    assert together(read_json(tmp_path, dtype={"a": str}))["a"].tolist() == ["1", "2"]
    (tmp_path / "b.json").write_text('{"a": {"0": 5, "1": 6}}')
    assert together(read_json(tmp_path / "b.json", orient="columns"))["a"].tolist() == [5, 6]


def test_a_bad_line_is_reported_with_its_number_and_can_be_dropped(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n' * 60 + '{"a": 1\n' + '{"a": 2}\n' * 60)
    with pytest.raises(BadRowError, match=r"a row cannot be read: .*a.jsonl, line 61: "):
        read_json(path, num_shards=3)
    with pytest.warns(DroppedRowsWarning, match="1 bad row dropped: .*line 61"):
        found = read_json(path, num_shards=3, on_error="drop")
    assert together(found)["a"].tolist() == [1] * 60 + [2] * 60


def test_what_is_no_json_is_named(tmp_path):
    (tmp_path / "a.json").write_text("<html>")
    with pytest.raises(BadRowError, match=r"a.json is not JSON that pandas reads"):
        read_json(tmp_path / "a.json")
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(pd.errors.EmptyDataError, match=r"b.jsonl is empty"):
        read_json(tmp_path / "b.jsonl")
    with pytest.raises(TypeError, match="unexpected keyword argument 'oriented'"):
        read_json(tmp_path / "b.jsonl", oriented="records")
    with pytest.raises(ValueError, match="chunksize= and nrows= are of no use here"):
        read_json(tmp_path / "b.jsonl", chunksize=3)
