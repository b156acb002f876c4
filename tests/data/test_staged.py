"""XShards as data: pieces that lie somewhere are written aside where they are.

Ray's data sets are tested where there is a Ray: ``tests/orca/xshards/test_contract.py``.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from seamline.core import registry
from seamline.core.errors import DataError
from seamline.core.shards import Columns, Reading, put_away
from seamline.data.arrow.staging import PREFIX
from seamline.orca import Estimator, XShards
from tests.data.reading import assert_same_batches
from tests.data.tables import SMALL, batches, values

ROWS = 300


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    yield
    assert list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")) == []


def read(data, columns=Columns()):
    """Inputs and targets of all rows."""
    shards = registry.shards(data, columns)
    try:
        (batch,) = shards.split(1, Reading(batch_size=10**6))[0].batches(0)
        return batch.inputs, batch.targets
    finally:
        put_away(shards)


def test_shards_of_frames_are_read_by_column():
    frame = pd.DataFrame({"x": np.arange(ROWS), "z": np.arange(ROWS) / 2})
    shards = XShards.partition(frame, 4).transform_shard(lambda part: part.assign(x=part.x * 2))
    np.testing.assert_array_equal(values(shards), np.arange(ROWS) * 2)
    options = {"shuffle": True, "memory_bytes": SMALL}
    assert_same_batches(batches(shards, 3, **options), batches(shards, 1, **options))
    with pytest.raises(ValueError, match=r"no column 'zz'; there are 'x', 'z' \(did you mean 'z'\?\)"):
        values(shards, ["zz"])


def test_x_and_y_are_inputs_and_targets_without_saying_so():
    x = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 3, 2)
    y = np.arange(ROWS)
    inputs, targets = read(XShards.partition({"x": x, "y": y}, 3))
    np.testing.assert_array_equal(inputs, x)
    np.testing.assert_array_equal(targets, y)
    assert inputs.dtype == np.float32
    (first, second), targets = read(XShards.partition({"x": [x, y * 2], "y": y}, 3))
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, y * 2)
    inputs, targets = read(XShards.partition((x, y), 2))
    np.testing.assert_array_equal(inputs, x)
    np.testing.assert_array_equal(targets, y)
    inputs, targets = read(XShards.partition(x, 2))
    np.testing.assert_array_equal(inputs, x)
    assert targets is None


def test_shards_that_are_empty_are_no_problem_unless_all_are():
    frame = pd.DataFrame({"x": np.arange(3)})
    np.testing.assert_array_equal(values(XShards.partition(frame, 7)), np.arange(3))
    with pytest.raises(DataError, match="the data has no rows"):
        values(XShards.partition(frame[:0], 2))


def test_an_estimator_learns_from_shards_what_it_learns_from_arrays():
    generator = np.random.default_rng(1)
    x, y = generator.normal(size=(ROWS, 4)).astype(np.float32), generator.integers(0, 2, ROWS)

    def train(data):
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        estimator = Estimator.from_torch(
            model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=nn.CrossEntropyLoss()
        )
        estimator.fit(data, batch_size=32, verbose=0)
        assert estimator.evaluate(data)["loss"] == pytest.approx(estimator.history_[0]["loss"], abs=0.2)
        return estimator.predict(x)

    np.testing.assert_array_equal(train(XShards.partition({"x": x, "y": y}, 3)), train((x, y)))
