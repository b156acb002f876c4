"""Tables of every library are read by the same adapter protocol, and what is written aside for them goes."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import datasets
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest
import torch
from torch import nn

from seamline.core import registry
from seamline.core.errors import DataError
from seamline.core.shards import Columns, Reading
from seamline.data.arrow.staging import PREFIX
from seamline.orca import Estimator
from tests.data.reading import assert_same_batches
from tests.data.tables import SMALL, batches, values

ROWS = 400
TABLE = pa.table({"x": np.arange(ROWS), "z": np.arange(ROWS, dtype=np.float32) / 2, "name": ["a", "b"] * 200})

BACKWARDS = list(reversed(range(ROWS)))


def hugging_face():
    return datasets.Dataset(TABLE)


KINDS = {
    "pyarrow table": lambda: TABLE,
    "record batch": lambda: TABLE.to_batches()[0],
    "pyarrow data set": lambda: pa.dataset.dataset([TABLE.slice(0, 100), TABLE.slice(100)]),
    "scanner": lambda: pa.dataset.dataset(TABLE).scanner(),
    "polars": lambda: pl.from_arrow(TABLE),
    "lazy polars": lambda: pl.concat([pl.from_arrow(TABLE)[:150], pl.from_arrow(TABLE)[150:]]).lazy(),
    "duckdb": lambda: duckdb.from_arrow(TABLE).filter("x >= 0"),
    "hugging face": hugging_face,
    "hugging face, in another order": lambda: hugging_face().select(BACKWARDS).select(BACKWARDS),
    "hugging face, streaming": lambda: hugging_face().to_iterable_dataset(),
}


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    yield
    assert left() == []


def left():
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_kind_of_table_gives_its_rows(make):
    x, z = values(make(), ["x", "z"])
    np.testing.assert_array_equal(x, np.arange(ROWS))
    np.testing.assert_array_equal(z, np.arange(ROWS) / 2)
    assert z.dtype == np.float32
    np.testing.assert_array_equal(values(make(), ["name"], categories={"name": ["b", "a"]}), [1, 0] * 200)
    options = {"shuffle": True, "memory_bytes": SMALL}
    one = batches(make(), 1, **options)
    np.testing.assert_array_equal(np.sort(np.concatenate(one)), np.arange(ROWS))
    assert_same_batches(batches(make(), 3, **options), one)


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_every_kind_of_table_names_its_columns_and_its_faults(make):
    with pytest.raises(ValueError, match=r"no column 'nme'; there are 'x', 'z', 'name' \(did you mean 'name'\?\)"):
        values(make(), ["nme"])
    with pytest.raises(DataError, match="column 'name' holds strings; say which there are"):
        values(make(), ["name"])


def holes(kind):
    table = pa.table({"x": [1, None, 3], "z": [1.0, 2.0, 3.0]})
    return {
        "pandas": table.to_pandas,
        "polars": lambda: pl.from_arrow(table),
        "duckdb": lambda: duckdb.from_arrow(table),
        "hugging face": lambda: datasets.Dataset(table),
        "shuffled": lambda: datasets.Dataset(table).select([2, 1, 0]),
    }[kind]()


@pytest.mark.parametrize("kind", ["pandas", "polars", "duckdb", "hugging face", "shuffled"])
def test_missing_values_are_left_out_or_filled(kind):
    backwards = -1 if kind == "shuffled" else 1
    np.testing.assert_array_equal(values(holes(kind), na="drop"), [1, 3][::backwards])
    np.testing.assert_array_equal(values(holes(kind), na=0), [1, 0, 3][::backwards])
    if kind != "pandas":  # which has no other way to say that a number is missing than one that is not a number
        with pytest.raises(DataError, match="column 'x' has missing values"):
            values(holes(kind))


def test_categories_of_a_pandas_frame():
    frame = pd.DataFrame({"x": ["Rome", "Oslo"]})
    np.testing.assert_array_equal(values(frame, categories={"x": ["Oslo", "Rome"]}), [1, 0])
    with pytest.raises(DataError, match="column 'x' holds 'Rome', which is not among its categories"):
        values(frame, categories={"x": ["Oslo"]})
    with pytest.raises(ValueError, match="na='mean' means nothing"):
        values(pd.DataFrame({"x": [1]}), na="mean")


def test_a_dict_of_data_sets_and_a_reader_that_was_read():
    with pytest.raises(ValueError, match="this is a dict of data sets; choose one of 'train', 'test'"):
        values(datasets.DatasetDict({"train": hugging_face(), "test": hugging_face()}))
    reader = TABLE.to_reader()
    np.testing.assert_array_equal(values(reader), np.arange(ROWS))
    with pytest.raises(DataError, match="no rows"):
        values(reader)


@pytest.mark.parametrize("kind", ["pyarrow table", "lazy polars", "hugging face"])
def test_two_processes_learn_what_one_would_from_a_table(kind, tmp_path):
    def train(workers):
        torch.manual_seed(0)
        model = nn.Linear(1, 1)
        estimator = Estimator.from_torch(
            model=model, optimizer=torch.optim.SGD(model.parameters(), 1e-6), loss=nn.MSELoss()
        )
        columns = {"feature_cols": [["z"]], "label_cols": [["x"]]}
        table = KINDS[kind]()
        estimator.fit(table, batch_size=16, workers=workers, memory=SMALL, verbose=0, **columns)
        estimator.ledger_.check(ROWS)
        return estimator.predict(table, feature_cols=[["z"]], workers=workers)

    np.testing.assert_allclose(train(2), train(1), atol=1e-5)


KILLED = """
import time
import pyarrow as pa
from seamline.core import registry
from seamline.core.shards import Columns, Reading

shards = registry.shards(pa.table({"x": [1, 2]}).to_reader(), Columns(features=["x"]))
shards.split(1, Reading(batch_size=10))
print("WRITTEN", flush=True)
time.sleep(100)
"""


def test_what_a_killed_program_left_is_removed_by_the_next():
    program = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
    )
    try:
        assert any("WRITTEN" in line for line in program.stdout)
        values(TABLE.to_reader())
        assert len(left()) == 1, "what another program uses was removed"
    finally:
        program.send_signal(signal.SIGKILL)
        program.communicate(timeout=30)
    assert list(left()[0].glob("*.arrow"))
    values(TABLE.to_reader())
    assert left() == []


def test_a_program_that_ends_without_a_word_leaves_nothing():
    shards = registry.shards(TABLE.to_reader(), Columns(features=["x"]))
    shards.split(1, Reading(batch_size=10))
    assert len(left()) == 1
    del shards
    assert left() == []
