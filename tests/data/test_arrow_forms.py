"""Columns of every type become arrays, and those that cannot are named."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from seamline.core import registry
from seamline.core.errors import DataError
from seamline.core.shards import Columns
from tests.data.tables import values

IMAGE = pa.struct(
    [
        ("origin", pa.string()),
        ("height", pa.int32()),
        ("width", pa.int32()),
        ("nChannels", pa.int32()),
        ("mode", pa.int32()),
        ("data", pa.binary()),
    ]
)
VECTOR = pa.struct(
    [("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
)
COUNT = np.arange(6, dtype=np.uint8)


def image(height=2, width=1, start=0):
    data = bytes(range(start, start + height * width * 3))
    return {"origin": "", "height": height, "width": width, "nChannels": 3, "mode": 16, "data": data}


def dense(*numbers):
    return {"type": 1, "size": None, "indices": None, "values": list(numbers)}


def sparse(size, indices, numbers):
    return {"type": 0, "size": size, "indices": indices, "values": numbers}


READABLE = {
    "whole numbers": (pa.array([1, 2, 3], pa.int16()), np.array([1, 2, 3], np.int16)),
    "floats": (pa.array([1.5, 2, 3], pa.float32()), np.array([1.5, 2, 3], np.float32)),
    "booleans": (pa.array([True, False, True]), np.array([True, False, True])),
    "decimals": (pa.array([decimal.Decimal("1.25")] * 2, pa.decimal128(9, 2)), np.array([1.25, 1.25])),
    "lists": (pa.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])),
    "large lists": (pa.array([[1], [2]], pa.large_list(pa.int32())), np.array([[1], [2]], np.int32)),
    "fixed lists": (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), np.array([[1, 2], [3, 4]])),
    "lists in lists": (pa.array([[[1, 2], [3, 4]]] * 3), np.array([[[1, 2], [3, 4]]] * 3)),
    "lists of nothing": (pa.array([[], []], pa.list_(pa.int32())), np.empty((2, 0), np.int32)),
    "booleans in lists": (pa.array([[True, False]] * 2), np.array([[True, False]] * 2)),
    "dense vectors": (pa.array([dense(1, 2), dense(3, 4)], VECTOR), np.array([[1.0, 2.0], [3.0, 4.0]])),
    "sparse vectors": (
        pa.array([sparse(3, [1], [5.0]), dense(1, 2, 3), sparse(3, [], [])], VECTOR),
        np.array([[0.0, 5.0, 0.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]),
    ),
    "images": (pa.array([image(), image(start=6)], IMAGE), np.arange(12, dtype=np.uint8).reshape(2, 2, 1, 3)),
    "bytes": (pa.array([b"\x00\x01\x02", b"\x03\x04\x05"]), COUNT.reshape(2, 3)),
    "fixed bytes": (pa.array([b"\x00\x01\x02", b"\x03\x04\x05"], pa.binary(3)), COUNT.reshape(2, 3)),
    "tensors": (
        pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12.0).reshape(2, 3, 2)),
        np.arange(12.0).reshape(2, 3, 2),
    ),
}


@pytest.mark.parametrize(("column", "expected"), READABLE.values(), ids=READABLE)
@pytest.mark.parametrize("memory", [2**20, 40], ids=["whole", "in windows"])
def test_a_column_becomes_the_array_that_it_stands_for(column, expected, memory):
    found = values(pa.table({"x": column}), memory_bytes=memory, batch_size=2)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    many = pa.table({"x": pa.concat_arrays([column] * 10)}).slice(len(column))
    np.testing.assert_array_equal(values(many, memory_bytes=memory), np.concatenate([expected] * 9))


def test_columns_side_by_side_are_one_array_of_their_common_type():
    table = pa.table({"a": pa.array([1, 2], pa.int8()), "b": pa.array([0.5, 1.5], pa.float32()), "c": [[1, 2], [3, 4]]})
    both, c = values(table, [["a", "b"], "c"])
    assert both.dtype == np.float32
    np.testing.assert_array_equal(both, [[1, 0.5], [2, 1.5]])
    np.testing.assert_array_equal(c, [[1, 2], [3, 4]])
    with pytest.raises(DataError, match=r"column 'c' has shape \(2,\) and 'a' has \(\); columns side by side need one"):
        values(table, [["a", "c"]])


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_strings_become_the_numbers_of_their_categories(kind):
    table = pa.table({"x": pa.array(["Rome", "Oslo", "Rome"]).cast(kind)})
    found = values(table, categories={"x": ["Oslo", "Rome"]})
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, [1, 0, 1])
    with pytest.raises(DataError, match="column 'x' holds 'Rome', which is not among its categories"):
        values(table, categories={"x": ["Oslo"]})


def test_numbers_may_be_categories_too():
    np.testing.assert_array_equal(values(pa.table({"x": [30, 10]}), categories={"x": [10, 20, 30]}), [2, 0])


UNREADABLE = {
    "strings": (pa.array(["a"]), r"column 'x' holds strings; say which there are, categories=\{'x': \[...\]\}"),
    "dictionaries": (pa.array(["a"]).dictionary_encode(), "column 'x' holds strings"),
    "times": (pa.array([datetime.datetime(2024, 1, 1)]), r"holds timestamp\[us\], not numbers; turn it into a number"),
    "dates": (pa.array([datetime.date(2024, 1, 1)]), r"holds date32\[day\], not numbers"),
    "structs": (pa.array([{"a": 1}]), "which makes no array; choose numbers, arrays of equal length"),
    "lists of strings": (pa.array([["a"]]), "which makes no array"),
    "ragged lists": (
        pa.array([[1, 2], [3, 4], [5]]),
        r"arrays of different lengths \(2 in the first row, 1 in another",
    ),
    "ragged inside": (pa.array([[[1], [2]], [[3], [4, 5]]]), "column 'x' holds arrays of different lengths"),
    "ragged bytes": (pa.array([b"ab", b"c"]), "column 'x' holds byte strings of different lengths"),
    "images": (pa.array([image(), image(height=3)], IMAGE), "images of different height .2 in the first, 3 later"),
    "vectors": (pa.array([dense(1, 2), sparse(3, [1], [1.0])], VECTOR), "column 'x' holds vectors of different sizes"),
    "nulls inside": (pa.array([[1, None], [3, 4]]), "column 'x' holds arrays with missing values inside"),
    "nulls": (pa.array([1, None, None]), "column 'x' has missing values .2 were seen first.; say na='drop'"),
}


@pytest.mark.parametrize(("column", "message"), UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize("memory", [2**20, 40], ids=["whole", "in windows"])
def test_what_makes_no_array_is_one_sentence_that_names_the_column(column, message, memory):
    with pytest.raises(DataError, match=message):
        values(pa.table({"x": column}), memory_bytes=memory, batch_size=1)


def test_missing_values_are_left_out_or_filled():
    table = pa.table({"x": [1.0, None, 3.0], "z": pa.array([None, 2, 3], pa.int32())})
    np.testing.assert_array_equal(values(table, na="drop"), [1, 3])
    np.testing.assert_array_equal(values(table, ["x", "z"], na="drop"), [[3], [3]])
    np.testing.assert_array_equal(values(table, na=7), [1, 7, 3])
    np.testing.assert_array_equal(values(table, ["x", "z"], na={"x": -1, "z": 0}), [[1, -1, 3], [0, 2, 3]])
    with pytest.raises(DataError, match="column 'z' has missing values"):
        values(table, ["x", "z"], na={"x": -1})
    with pytest.raises(DataError, match=r"column 'z' holds int32, which 0\.5 cannot fill"):
        values(table, ["z"], na=0.5)
    with pytest.raises(ValueError, match="na='mean' means nothing; say 'drop', a number, or a dict"):
        values(table, na="mean")
    with pytest.raises(DataError, match="the data has no rows"):
        values(pa.table({"x": pa.array([None], pa.int8())}), na="drop")


def test_names_that_are_not_there_are_answered_with_a_near_one():
    table = pa.table({"age": [1], "income": [2]})
    for options in ({"features": ["incme"]}, {"features": ["age"], "categories": {"incme": []}}):
        with pytest.raises(
            ValueError, match=r"no column 'incme'; there are 'age', 'income' \(did you mean 'income'\?\)"
        ):
            values(table, **options)
    with pytest.raises(TypeError, match=r"\['age'\] instead of 'age'"):
        registry.shards(table, Columns(features="age"))


def test_a_table_without_rows_or_without_names():
    with pytest.raises(DataError, match="the data has no rows"):
        values(pa.table({"x": pa.array([], pa.int8())}))
    with pytest.raises(ValueError, match=r"a table needs feature_cols=\[...\].*; it has 'x'"):
        registry.shards(pa.table({"x": [1]}), Columns())
    with pytest.raises(TypeError, match="na= and categories= are for tables, and the data is arrays"):
        registry.shards(np.arange(3), Columns(na="drop"))
