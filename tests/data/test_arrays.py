"""Arrays of every form become batches, the same for any number of workers."""

import numpy as np
import pandas as pd
import pytest
import torch

from seamline.core.shards import Columns
from tests.data.reading import assert_same_batches, split, whole_batches

X = np.arange(23)


@pytest.mark.parametrize("workers", [2, 3, 4, 5])
@pytest.mark.parametrize("shuffle", [True, False])
def test_any_number_of_workers_reads_the_batches_that_one_reads(workers, shuffle):
    options = {"batch_size": 5, "shuffle": shuffle, "seed": 3}
    one = whole_batches(X, 1, epoch=2, **options)
    assert_same_batches(whole_batches(X, workers, epoch=2, **options), one)
    assert [len(batch) for batch in one] == [5, 5, 5, 5, 3]
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), X)
    assert_same_batches(whole_batches(X, workers, epoch=2, first_step=3, **options), one[3:])


@pytest.mark.parametrize(
    "data",
    [
        X.astype(np.float32),
        torch.arange(23.0),
        list(range(23)),
        (torch.arange(23.0), X),
        pd.Series(X),
    ],
    ids=["numpy", "tensor", "list", "pair", "series"],
)
def test_every_form_of_rows_is_read(data):
    np.testing.assert_array_equal(np.concatenate(whole_batches(data, 2, batch_size=4)), X)


def test_structures_are_kept_and_targets_are_apart():
    data = ({"a": X, "b": (X * 2, [X * 3, torch.arange(23)])}, X * 10)
    (batch,) = split(data, 1, batch_size=23)[0].batches(0)
    assert list(batch.inputs) == ["a", "b"]
    np.testing.assert_array_equal(batch.inputs["b"][1][0], X * 3)
    np.testing.assert_array_equal(batch.targets, X * 10)


def test_columns_of_a_frame_and_of_a_dict_by_name():
    frame = pd.DataFrame({"age": X, "income": X * 2.0, "label": X % 2, "name": "x"})
    columns = Columns(features=["age", ["age", "income"]], labels=["label"])
    for data in (frame, {name: frame[name].to_numpy() for name in frame}):
        (batch,) = split(data, 1, columns, batch_size=23)[0].batches(0)
        age, both = batch.inputs
        np.testing.assert_array_equal(age, X)
        np.testing.assert_array_equal(both, np.stack([X, X * 2.0], axis=1))
        np.testing.assert_array_equal(batch.targets, X % 2)


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        ((X, X[:-1]), None, "same number of rows, but x has 23, y has 22"),
        (({"a": X, "b": X[1:]}, X), None, r"x\['a'\] has 23, x\['b'\] has 22"),
        ((X, X, X), None, r"tuple of 3, which could mean many things; give \(x, y\)"),
        (np.zeros((0, 3)), None, "the data has no rows"),
        (np.float32(3), None, "x is a single value"),
        ([[1, 2], [3]], None, "unequal shape|inhomogeneous"),
        ({"age": X}, Columns(features=["aeg"]), r"no column 'aeg'; there are 'age' \(did you mean 'age'\?\)"),
        (pd.DataFrame({"age": X}), Columns(features=["age"], labels=["y"]), "no column 'y'; there are 'age'"),
        (pd.DataFrame({"age": X}), None, "a DataFrame needs feature_cols"),
        (pd.DataFrame({"name": ["a", "b"]}), Columns(features=["name"]), "column 'name' holds .*, not numbers"),
        (pd.DataFrame({"name": ["a", "b"]}), Columns(features=[["name"]]), "column 'name' holds .*, not numbers"),
    ],
)
def test_bad_data_is_one_clear_sentence(data, columns, message):
    with pytest.raises(ValueError, match=message):
        split(data, 2, columns, batch_size=4)


def test_column_names_need_named_columns_and_a_list():
    with pytest.raises(TypeError, match="feature_cols names columns, but the data is a ndarray"):
        split(X, 1, Columns(features=["age"]), batch_size=4)
    with pytest.raises(TypeError, match=r"\['age'\] instead of 'age'"):
        split({"age": X}, 1, Columns(features="age"), batch_size=4)
