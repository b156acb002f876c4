"""Transformers: what scikit-learn learns from all rows at once."""

import numpy as np
import pandas as pd
import pytest
from sklearn import decomposition, preprocessing

from seamline.core.errors import ColumnError, SeamlineError
from seamline.orca import XShards
from seamline.orca.xshards.transformers import (
    Bucketizer,
    MinMaxScaler,
    OneHot,
    PartialFit,
    StandardScaler,
    StringIndexer,
)


@pytest.fixture
def frame():
    rng = np.random.default_rng(4)
    values = rng.normal(3, 5, (50, 3))
    values[::9, 0] = np.nan
    return pd.DataFrame(
        {
            "a": values[:, 0],
            "b": values[:, 1].astype(np.float32),
            "c": 7.0,
            "word": rng.choice(["Zürich", "a", "東京", "b"], 50),
            "count": rng.integers(0, 5, 50),
        }
    )


@pytest.fixture(params=[1, 4, 60])
def shards(request, frame):
    """In one shard, in some, and in so many that some are empty."""
    return XShards.partition(frame, request.param)


def test_min_max_scaling_is_that_of_scikit_learn(shards, frame):
    columns = ["a", "b", "c", "count"]
    ours = MinMaxScaler(columns, feature_range=(-1, 2)).fit(shards)
    theirs = preprocessing.MinMaxScaler((-1, 2)).fit(frame[columns].astype(np.float64))
    np.testing.assert_allclose(ours.data_min_, theirs.data_min_, rtol=1e-15)
    found = ours.transform(shards).to_pandas()
    np.testing.assert_allclose(found[columns], theirs.transform(frame[columns].astype(np.float64)), rtol=1e-6)
    assert found["b"].dtype == np.float32
    assert found["word"].equals(frame["word"])


def test_standard_scaling_is_that_of_scikit_learn(shards, frame):
    columns = ["a", "b", "c", "count"]
    ours = StandardScaler(columns, outputs=["A", "B", "C", "COUNT"]).fit(shards)
    theirs = preprocessing.StandardScaler().fit(frame[columns].astype(np.float64))
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-13)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-12, atol=1e-15)
    found = ours.transform(shards).to_pandas()
    expected = theirs.transform(frame[columns].astype(np.float64))
    np.testing.assert_allclose(found[["A", "B", "C", "COUNT"]], expected, rtol=1e-5, atol=1e-7)
    assert found["a"].equals(frame["a"])


def test_indices_are_those_of_scikit_learns_ordinal_encoder(shards, frame):
    ours = StringIndexer(["word", "count"]).fit(shards)
    theirs = preprocessing.OrdinalEncoder().fit(frame[["word", "count"]])
    assert ours.categories_["word"] == list(theirs.categories_[0])
    found = ours.transform(shards).to_pandas()
    np.testing.assert_array_equal(found[["word", "count"]], theirs.transform(frame[["word", "count"]]))
    assert found["word"].dtype == np.int64


def test_one_hot_columns_are_those_of_scikit_learn(shards, frame):
    found = OneHot("word").fit_transform(shards).to_pandas()
    theirs = preprocessing.OneHotEncoder(sparse_output=False).fit(frame[["word"]])
    names = list(theirs.get_feature_names_out())
    assert list(found.columns) == ["a", "b", "c", "count", *names]
    np.testing.assert_array_equal(found[names], theirs.transform(frame[["word"]]))


def test_buckets_are_those_of_scikit_learns_discretizer(shards, frame):
    theirs = preprocessing.KBinsDiscretizer(4, encode="ordinal", strategy="uniform").fit(frame[["b"]])
    found = Bucketizer("b", splits=list(theirs.bin_edges_[0])).transform(shards).to_pandas()
    np.testing.assert_array_equal(found[["b"]], theirs.transform(frame[["b"]]))


@pytest.mark.parametrize("make", [preprocessing.MaxAbsScaler, lambda: decomposition.IncrementalPCA(2)])
def test_a_transformer_with_partial_fit_learns_what_it_learns_from_the_shards_in_turn(make, frame):
    columns = ["b", "count"]
    shards = XShards.partition(frame, 4)
    theirs = make()
    for part in shards.collect():
        theirs.partial_fit(part[columns])
    untouched = make()
    ours = PartialFit(untouched, columns).fit(shards)
    assert not hasattr(untouched, "n_samples_seen_")
    found = ours.transform(shards).to_pandas()
    assert list(found.columns) == ["a", "c", "word", *theirs.get_feature_names_out()]
    np.testing.assert_array_equal(found[theirs.get_feature_names_out()], theirs.transform(frame[columns]))


def test_arrays_are_transformed_as_arrays_and_empty_shards_are_skipped():
    array = np.arange(6.0).reshape(3, 2)
    shards = XShards.partition(array, 5)
    found = PartialFit(preprocessing.StandardScaler()).fit_transform(shards)
    assert [shard.shape for shard in found.collect()] == [(1, 2)] * 3 + [(0, 2)] * 2
    np.testing.assert_allclose(found.to_pandas(), preprocessing.StandardScaler().fit_transform(array))


def test_what_was_not_seen_is_named_or_kept():
    known, other = (XShards.partition(pd.DataFrame({"w": words}), 2) for words in (["a", "b"], ["b", "x", None]))
    with pytest.raises(ColumnError, match="column 'w' holds 'x', which fit has not seen"):
        StringIndexer("w").fit(known).transform(other).collect()
    kept = StringIndexer("w", handle_unknown="keep").fit(known).transform(other).to_pandas()
    assert kept["w"].to_list() == [1, -1, -1]
    ignored = OneHot("w", handle_unknown="ignore").fit(known).transform(other).to_pandas()
    assert ignored.to_numpy().tolist() == [[0, 1], [0, 0], [0, 0]]


def test_misuse_is_told(shards):
    with pytest.raises(SeamlineError, match="this StandardScaler has learned nothing yet; call fit first"):
        StandardScaler("a").transform(shards)
    with pytest.raises(SeamlineError, match="this PartialFit has learned nothing yet; call fit first"):
        PartialFit(preprocessing.MaxAbsScaler()).transform(shards)
    with pytest.raises(TypeError, match="OneHotEncoder has no partial_fit"):
        PartialFit(preprocessing.OneHotEncoder()).fit(shards)
    with pytest.raises(ColumnError, match=r"no column 'wordd'; .*did you mean 'word'\?"):
        StringIndexer("wordd").fit(shards)
    with pytest.raises(ColumnError, match=r"column 'count' holds .*, which is not from 1 to 2"):
        Bucketizer("count", [1, 2]).transform(shards).collect()
    with pytest.raises(ValueError, match="splits must be at least two numbers that increase"):
        Bucketizer("count", [2, 1]).transform(shards)
    with pytest.raises(ValueError, match="outputs has 1 names for 2 columns"):
        MinMaxScaler(["a", "b"], outputs="x").fit(shards)
