"""Predictions beside the rows that they are of, on every kind of table that lies elsewhere."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from seamline.core.errors import DataError, SeamlineError
from seamline.nano.torch import InferenceOptimizer
from seamline.orca import Estimator, OrcaContext, XShards, init_orca_context

ROWS = 1000
INPUTS = {"feature_cols": [["a.b", "ß", "c"]]}


class Pair(nn.Module):
    """A vector and a number for each row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        body = self.body(x)
        return {"vector": body, "number": self.head(body).squeeze(1)}


@pytest.fixture(scope="module")
def table():
    x = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    names = [None if row % 7 == 0 else f"row {row}" for row in range(ROWS)]
    return pd.DataFrame({"id": range(ROWS), "a.b": x[:, 0], "ß": x[:, 1], "c": x[:, 2], "name": names})


@pytest.fixture(scope="module")
def expected(table):
    return estimator().predict(table[["a.b", "ß", "c"]].to_numpy())


def estimator(model=None):
    return Estimator.from_torch(model=model or nn.Sequential(Pair(), Second()))


class Second(nn.Module):
    def forward(self, both):
        return both["vector"]


def in_spark(session, table):
    return session.createDataFrame(pa.Table.from_pandas(table, preserve_index=False))


@pytest.fixture(scope="module")
def spark():
    with init_orca_context("local[2]"):
        yield OrcaContext.get_spark_session()


def test_a_spark_dataframe_gets_a_column_when_somebody_asks(spark, table, expected):
    frame = in_spark(spark, table).repartition(5)
    answered = estimator().predict(frame, batch_size=64, **INPUTS)
    assert answered.columns == [*table.columns, "prediction"]
    seen = answered.filter("id % 3 = 0").toArrow().to_pandas().sort_values("id")
    np.testing.assert_allclose(np.stack(seen["prediction"]), expected[::3], atol=1e-6)
    pd.testing.assert_series_equal(seen["name"].reset_index(drop=True), table["name"][::3].reset_index(drop=True))


def test_several_outputs_are_several_columns(spark, table):
    both = estimator(Pair()).predict(table[["a.b", "ß", "c"]].to_numpy())
    seen = estimator(Pair()).predict(in_spark(spark, table), **INPUTS).toArrow().to_pandas().sort_values("id")
    np.testing.assert_allclose(np.stack(seen["prediction_vector"]), both["vector"], atol=1e-6)
    np.testing.assert_allclose(seen["prediction_number"], both["number"], atol=1e-6)


def test_an_optimized_model_answers_in_the_executors(spark, table, expected):
    model = nn.Sequential(Pair(), Second())
    fast = InferenceOptimizer.trace(model, accelerator="openvino", input_sample=torch.zeros(4, 3))
    answered = estimator(model).predict(in_spark(spark, table), model=fast, **INPUTS)
    seen = answered.toArrow().to_pandas().sort_values("id")
    np.testing.assert_allclose(np.stack(seen["prediction"]), expected, atol=1e-4)


def test_missing_values_are_an_error_that_names_the_column_or_left_out(spark, table, expected):
    frame = in_spark(spark, table.assign(c=table["c"].where(table["id"] % 10 != 5)))
    with pytest.raises(Exception, match="column 'c' has missing values"):
        estimator().predict(frame, **INPUTS).count()
    seen = estimator().predict(frame, na="drop", **INPUTS).toArrow().to_pandas().sort_values("id")
    assert seen["id"].tolist() == [number for number in range(ROWS) if number % 10 != 5]
    np.testing.assert_allclose(np.stack(seen["prediction"]), expected[seen["id"]], atol=1e-6)


def test_what_cannot_be_answered_is_told_before_anything_runs(spark, table):
    frame = in_spark(spark, table)
    with pytest.raises(DataError, match="has no rows"):
        estimator().predict(frame.filter("id < 0"), **INPUTS)
    with pytest.raises(DataError, match="has a column 'prediction' already"):
        estimator().predict(frame.withColumnRenamed("name", "prediction"), **INPUTS)
    with pytest.raises((SeamlineError, ValueError), match="no column 'd'"):
        estimator().predict(frame, feature_cols=["d"])


def test_shards_get_columns_or_entries(table, expected):
    frames = estimator().predict(XShards.partition(table, 3), **INPUTS).to_pandas()
    np.testing.assert_allclose(np.stack(frames["prediction"]), expected, atol=1e-6)
    arrays = estimator().predict(XShards.partition({"x": table[["a.b", "ß", "c"]].to_numpy()}, 3)).collect()
    np.testing.assert_allclose(np.concatenate([shard["prediction"] for shard in arrays]), expected, atol=1e-6)
