"""Pipelines of tf.data: the batches that they give by themselves, for any number of workers, in every restart."""

import os
import pickle

import numpy as np
import pytest
import torch
from torch import nn

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

from seamline.core.errors import DataError, UnpicklableError
from seamline.core.shards import Columns
from seamline.orca import Estimator
from tests.data.reading import assert_same_batches, split, whole_batches
from tests.orca.networks import assert_same_weights, weights

ROWS = 23


def rows():
    return tf.data.Dataset.range(ROWS)


PIPELINES = {
    "as it is": lambda: rows().batch(5),
    "shuffled, batched, mapped": lambda: rows().shuffle(50, seed=7).batch(5).map(lambda x: 2 * x).prefetch(2),
    "in one order": lambda: rows().shuffle(4, seed=1, reshuffle_each_iteration=False).batch(5),
    "cached": lambda: rows().map(lambda x: x + 1, num_parallel_calls=4).cache().shuffle(9, seed=3).batch(5),
    "twice in an epoch": lambda: rows().shuffle(50, seed=7).repeat(2).batch(6),
    "dropped": lambda: rows().shuffle(50, seed=7).batch(5, drop_remainder=True),
    "interleaved": lambda: rows().interleave(lambda x: tf.data.Dataset.from_tensors(x), cycle_length=3).batch(5),
    "generated": lambda: tf.data.Dataset.from_generator(
        lambda: iter(range(ROWS)), output_signature=tf.TensorSpec((), tf.int64)
    ).batch(5),
}


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
def test_epochs_are_what_the_pipeline_gives_when_it_is_iterated(make):
    pipeline = make()
    plain = [[batch.numpy() for batch in pipeline] for _ in range(3)]
    assert_same_batches(whole_batches(make(), 1, epoch=2, batch_size=5), plain[2])
    assert_same_batches(whole_batches(make(), 3, epoch=1, batch_size=5), plain[1])
    assert_same_batches(whole_batches(make(), 3, epoch=1, first_step=2, batch_size=5), plain[1][2:])
    shard = split(make(), 1, batch_size=5)[0]
    for epoch in (0, 1, 2, 1):  # in a row, and again
        assert_same_batches([batch.inputs for batch in shard.batches(epoch)], plain[epoch])


def test_shuffling_without_a_seed_follows_the_seed_of_the_run():
    def read(workers, **options):
        return np.concatenate(whole_batches(rows().shuffle(50).batch(5), workers, batch_size=5, **options)).tolist()

    assert read(1) == read(2) == read(3)
    assert sorted(read(1)) == sorted(read(1, epoch=1)) == list(range(ROWS))
    assert len({tuple(read(1)), tuple(read(1, epoch=1)), tuple(read(1, seed=1))}) == 3
    assert read(2, every_row_in_order=True) == list(range(ROWS))


def test_rows_are_batched_and_batches_are_not_batched_again():
    assert [len(batch) for batch in whole_batches(rows(), 2, batch_size=10)] == [10, 10, 3]
    assert [len(batch) for batch in whole_batches(rows().batch(4).unbatch(), 2, batch_size=10)] == [10, 10, 3]
    with pytest.raises(ValueError, match="batch_size=10, but the data comes in batches of 4"):
        estimator().fit(rows().batch(4), batch_size=10)
    vectors = tf.data.Dataset.from_generator(lambda: iter([]), output_signature=tf.TensorSpec((3,), tf.int64))
    with pytest.raises(DataError, match=r"nobody can tell whether the items .* are rows or batches; add .batch\(n\)"):
        split(vectors, 1, batch_size=4)


def test_inputs_and_targets_are_pairs_or_named_columns():
    data = {"a": np.arange(6.0), "b": np.arange(6), "y": np.arange(6) * 10}
    pairs = tf.data.Dataset.from_tensor_slices(({"a": data["a"], "b": data["b"]}, data["y"])).batch(6)
    (batch,) = split(pairs, 1)[0].batches(0)
    np.testing.assert_array_equal(batch.inputs["a"], data["a"])
    np.testing.assert_array_equal(batch.targets, data["y"])
    assert batch.targets.flags.writeable
    named = tf.data.Dataset.from_tensor_slices(data).batch(6)
    (batch,) = split(named, 1, Columns(features=[["a", "b"]], labels=["y"]))[0].batches(0)
    np.testing.assert_array_equal(batch.inputs, np.stack([data["a"], data["b"]], axis=1))
    with pytest.raises(ValueError, match=r"no column 'aa'; there are 'a', 'b', 'y' \(did you mean 'a'\?\)"):
        split(named, 1, Columns(features=["aa"]))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rows().repeat().batch(5), DataError, r"never ends; .* leave .repeat\(\) out, or add .take\(n\)"),
        (lambda: tf.data.Dataset.from_tensor_slices(["a"]).batch(1), DataError, "item of this .* is text"),
        (lambda: tf.data.Dataset.zip((rows(), rows(), rows())).batch(2), ValueError, r"tuples of 3; give \(x, y\)"),
        (lambda: rows().map(tf.range).ragged_batch(2), DataError, "is RaggedTensorSpec, which makes no array"),
        (lambda: rows().window(3), DataError, "is DatasetSpec, which makes no array"),
    ],
    ids=["infinite", "text", "weights", "ragged", "windows"],
)
def test_what_cannot_be_read_is_one_sentence(make, error, message):
    with pytest.raises(error, match=message):
        split(make(), 1, batch_size=4)


def test_endless_pipelines_are_fine_with_an_end_and_unknown_lengths_are_fine_as_they_are():
    assert len(whole_batches(rows().repeat().batch(5).take(7), 2)) == 7
    assert split(rows().repeat().batch(5).take(7), 1)[0].steps == 7
    odd = rows().filter(lambda x: x % 2 == 1).batch(5)
    assert split(odd, 1)[0].steps is None
    assert np.concatenate(whole_batches(odd, 3)).tolist() == list(range(1, ROWS, 2))


def test_what_lives_in_one_process_does_not_travel_but_a_function_that_makes_it_does():
    with pytest.raises(
        UnpicklableError, match=r"calls Python functions of this process.* give a function that makes it"
    ):
        pickle.dumps(split(PIPELINES["generated"](), 2)[0])
    made = split(lambda config, batch_size: rows().batch(batch_size), 2, batch_size=4)
    assert [batch.rows for batch in made[1].batches(0)] == [2, 2, 2, 2, 2, 0]
    keys = tf.lookup.KeyValueTensorInitializer([0, 1], [5, 6], tf.int64, tf.int64)
    table = tf.lookup.StaticHashTable(keys, default_value=9)
    looked_up = pickle.loads(pickle.dumps(split(rows().take(4).map(table.lookup).batch(4), 1)[0]))
    assert [batch.inputs.tolist() for batch in looked_up.batches(0)] == [[5, 6, 9, 9]]
    there = pickle.loads(pickle.dumps(split(PIPELINES["cached"](), 2)[1]))
    here = split(PIPELINES["cached"](), 2)[1]
    assert_same_batches([b.inputs for b in there.batches(1)], [b.inputs for b in here.batches(1)])


def test_workers_notice_that_their_batches_differ():
    def marks(pipeline):
        return [[batch.fingerprint for batch in shard.batches(0)] for shard in split(pipeline, 2)]

    same, others = marks(PIPELINES["cached"]()), marks(rows().map(lambda x: tf.random.uniform(())).batch(5))
    assert same[0] == same[1]
    assert len(set(same[0])) == len(same[0])
    assert all(ours != theirs for ours, theirs in zip(*others, strict=True))
    assert all(shard.steps is None for shard in split(PIPELINES["as it is"](), 2)), "they do not compare"


def estimator():
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    return Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), loss=nn.CrossEntropyLoss()
    )


def test_two_workers_learn_what_one_would_and_what_arrays_in_that_order_teach():
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = (x.sum(1) > 0).astype(np.int64)
    pipeline = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(40, seed=5).batch(8).map(lambda x, y: (x * 2, y))
    epochs = [np.concatenate([each.numpy() for each, _ in pipeline]) for _ in range(2)]
    one, two = (estimator().fit(pipeline, epochs=2, workers=workers, verbose=0) for workers in (1, 2))
    for ours, theirs in zip(weights(two), weights(one), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    two.ledger_.check(40)
    again = estimator()
    for inputs in epochs:
        again.fit((inputs, (inputs.sum(1) > 0).astype(np.int64)), batch_size=8, shuffle=False, verbose=0)
    assert_same_weights(one, again)
