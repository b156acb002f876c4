"""Spark DataFrames: every row once whatever the partitions, the numbers of arrays, and nothing left behind."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from pyspark.ml.linalg import Vectors
from pyspark.sql.functions import col, current_timestamp, lit, raise_error
from pyspark.sql.types import ArrayType, DecimalType, DoubleType, LongType, StringType, StructField, StructType
from torch import nn

from seamline.core.errors import CheckpointError, DataError, WorkerError
from seamline.core.shards import Columns, Reading
from seamline.data.arrow.staging import PREFIX, Stage
from seamline.data.spark import _limits, _remove_on_executors
from seamline.orca import Estimator, init_orca_context
from seamline.testing.faults import Kill
from tests.data.tables import SMALL, batches, opened, values
from tests.engines.spark_cluster import in_one_process
from tests.orca.networks import assert_same_weights, weights

ROWS = 300
FEATURES = [f"f{n}" for n in range(6)]
WINDOWS = 2**14
"""Memory that is too little for all rows."""


@pytest.fixture(scope="module")
def spark():
    with in_one_process() as (session, _):
        yield session


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(tmp_path_factory, monkeypatch):
    """In a folder for temporary files that nobody else uses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    yield
    assert left() == []


def left():
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def rows_of(spark):
    generator = np.random.default_rng(4)
    x = generator.normal(size=(ROWS, 6)).astype(np.float32)
    y = (x @ generator.normal(size=(6, 3))).argmax(1).astype(np.int64)
    names = ", ".join(f"{name} float" for name in FEATURES) + ", y bigint, id bigint"
    table = [(*map(float, x[n]), int(y[n]), n) for n in range(ROWS)]
    pieces = [[], table[:1], [], table[1:241], table[241:]]
    partitions = spark.sparkContext.union([spark.sparkContext.parallelize(piece, 1) for piece in pieces])
    return spark.createDataFrame(partitions, names), (x, y)


@pytest.fixture(scope="module")
def table(spark):
    frame, arrays = rows_of(spark)
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sizes == [0, 1, 0, 240, 59]
    return frame, arrays


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(0.0), nn.Linear(12, 3))


def train(data, workers=1, *, model_dir=None, resume=None, **options):
    model = network()
    estimator = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        loss=nn.CrossEntropyLoss(),
        model_dir=model_dir,
    )
    columns = {} if isinstance(data, tuple) else {"feature_cols": [FEATURES], "label_cols": ["y"]}
    saving = {"checkpoint": 4, "resume": resume} if model_dir else {}
    return estimator.fit(data, epochs=2, batch_size=20, workers=workers, verbose=0, **columns, **saving, **options)


@pytest.fixture(scope="module")
def by_two(table):
    """What two local workers have learned from windows of rows."""
    return train(table[0], 2, memory=WINDOWS)


@pytest.mark.parametrize("memory", [WINDOWS, 2**20], ids=["windows", "in memory"])
def test_two_workers_learn_what_one_would(table, by_two, memory):
    frame, _ = table
    one = train(frame, 1, memory=memory)
    two = by_two if memory == WINDOWS else train(frame, 2, memory=memory)
    for ours, theirs in zip(weights(one), weights(two), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
    two.ledger_.check(ROWS)
    assert two.history_[0]["loss"] == pytest.approx(one.history_[0]["loss"], abs=1e-5)


def test_a_frame_teaches_exactly_what_its_arrays_do(table):
    frame, arrays = table
    assert_same_weights(train(frame, shuffle=False, memory=WINDOWS), train(arrays, shuffle=False))
    assert_same_weights(train(frame, shuffle=False), train(arrays, shuffle=False))
    assert_same_weights(train(frame), train(arrays))


def test_workers_of_the_same_spark_read_what_it_has_written(spark, table, by_two):
    frame, _ = table
    with init_orca_context("spark"):
        on_spark = train(frame, 2, memory=WINDOWS)
    for ours, theirs in zip(weights(on_spark), weights(by_two), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    on_spark.ledger_.check(ROWS)


def test_a_killed_run_resumes_to_the_weights_of_an_undisturbed_one(table, by_two, tmp_path):
    frame, _ = table
    kill = Kill(rank=1, step=ROWS // 20 + 6)
    with pytest.raises(WorkerError, match="SIGKILL"):
        train(frame, 2, model_dir=tmp_path, memory=WINDOWS, faults=[kill], retry=0)
    assert left() == []
    resumed = train(frame, 2, model_dir=tmp_path, resume="auto", memory=WINDOWS)
    assert_same_weights(resumed, by_two)
    resumed.ledger_.check(ROWS)
    assert resumed.ledger_.epochs == [0, 1]


def test_a_place_in_other_rows_or_windows_means_nothing(table, tmp_path):
    frame, _ = table
    train(frame, model_dir=tmp_path, max_steps=4, memory=WINDOWS)
    with pytest.raises(CheckpointError, match="was made with window=7, this run has window=None"):
        train(frame, model_dir=tmp_path, resume="auto")
    with pytest.raises(CheckpointError, match="was made with data="):
        train(frame.orderBy("f0").coalesce(1), model_dir=tmp_path, resume="auto", memory=WINDOWS)


def test_columns_of_every_type_arrive(spark):
    frame = spark.createDataFrame(
        [
            (Vectors.dense([1.0, 2.0]), [1.0, 2.0], [[1], [2]], True, "Rome", 5),
            (Vectors.sparse(2, [1], [5.0]), [3.0, 4.0], [[3], [4]], False, "Oslo", 6),
        ],
        ["vector", "array", "nested", "flag", "city", "number"],
    ).select("*", col("number").cast(DecimalType(8, 2)).alias("price"), col("number").cast("float").alias("small"))
    names = ["vector", "array", "nested", "flag", "city", "number", "price", "small"]
    found = dict(zip(names, values(frame, names, categories={"city": ["Oslo", "Rome"]}), strict=True))
    np.testing.assert_array_equal(found["vector"], [[1, 2], [0, 5]])
    np.testing.assert_array_equal(found["array"], [[1, 2], [3, 4]])
    np.testing.assert_array_equal(found["nested"], [[[1], [2]], [[3], [4]]])
    np.testing.assert_array_equal(found["flag"], [True, False])
    np.testing.assert_array_equal(found["city"], [1, 0])
    assert found["price"].tolist() == [5.0, 6.0]
    assert found["small"].dtype == np.float32


def test_images_of_spark_arrive(spark, tmp_path):
    from PIL import Image

    for number in range(2):
        Image.new("RGB", (4, 3), (number, 20, 30)).save(tmp_path / f"{number}.png")
    images = spark.read.format("image").load(str(tmp_path)).orderBy("image.origin")
    found = values(images, ["image"])
    assert found.shape == (2, 3, 4, 3)
    assert found[1, 0, 0].tolist() == [30, 20, 1], "Spark keeps blue before red"


def test_the_sessions_settings_are_what_they_were(spark, table):
    names = ["spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"]
    spark.conf.set(names[0], "123")
    before = [spark.conf.get(name, None) for name in names]
    values(table[0], ["y"])
    assert [spark.conf.get(name, None) for name in names] == before
    spark.conf.unset(names[0])


@pytest.mark.parametrize(
    ("columns", "memory", "rows", "weighed"),
    [
        (["id"], 2**30, 65536, False),
        (["id", "cast(id as float) as f", "cast(id as decimal(9, 2)) as d"], 2**20, 2**15 // 28, False),
        (["id", "cast(id as string) as s"], 2**20, 65536, True),
        (["array(id) as a"], 2**20, 65536, True),
    ],
)
def test_only_rows_of_different_sizes_are_weighed_by_spark(spark, columns, memory, rows, weighed):
    frame = spark.range(3).selectExpr(*columns)
    stage = Stage(frame.columns, Columns(), Reading(memory_bytes=memory))
    try:
        most, weight = _limits(frame, stage).values()
        assert (most, weight < 2**31 - 1) == (rows, weighed)
        assert weighed or sum(type_.itemsize for type_ in _numpy(frame)) * most <= memory // 32
    finally:
        stage.close()


def _numpy(frame):
    widths = {"bigint": "i8", "float": "f4", "decimal(9,2)": "V16"}
    return [np.dtype(widths[kind]) for _, kind in frame.dtypes]


def test_only_the_named_columns_are_written(table, tmp_path):
    with opened(table[0], features=["f0"], labels=["y"], cache_dir=str(tmp_path)) as (shard,):
        assert shard.layout.names == ["f0", "y"]
        (folder,) = tmp_path.iterdir()
        assert sum(file.stat().st_size for file in folder.glob("*.arrow")) < 3 * ROWS * (4 + 8)
        assert len(list(folder.glob("*.arrow"))) == 3, "an empty partition leaves no file"
    assert list(tmp_path.iterdir()) == []


def test_odd_names_of_columns_are_read(spark):
    frame = spark.createDataFrame([(1, 2)], ["a.b", "c`d e"])
    np.testing.assert_array_equal(values(frame, ["a.b", "c`d e"]), [[1], [2]])


def bad(spark):
    ragged = StructType([StructField("x", ArrayType(DoubleType())), StructField("y", LongType())])
    return {
        "no column 'f00'": (spark.range(3).withColumnRenamed("id", "f0"), ["f00"]),
        "column 'x' has missing values": (spark.createDataFrame([(None, 1), (2, 1)], "x int, y int"), ["x"]),
        "column 'x' holds arrays of different lengths": (spark.createDataFrame([([1.0], 1), ([], 2)], ragged), ["x"]),
        "column 'x' holds strings; say which": (spark.createDataFrame([("a",)], ["x"]), ["x"]),
        "column 'x' holds timestamp": (spark.range(1).select(current_timestamp().alias("x")), ["x"]),
        "the data has no rows": (spark.createDataFrame([], StructType([StructField("x", StringType())])), ["x"]),
    }


@pytest.mark.parametrize("number", range(6))
def test_bad_input_is_one_clear_sentence_whoever_finds_it(spark, number):
    message, (frame, names) = list(bad(spark).items())[number]
    with pytest.raises(ValueError, match=message):
        values(frame, names)
    model = nn.Linear(1, 1)
    estimator = Estimator.from_torch(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=nn.MSELoss())
    with pytest.raises(ValueError, match=message):
        estimator.fit(frame, feature_cols=names, label_cols=names, batch_size=2, workers=2, verbose=0)


def test_missing_values_are_left_out_or_filled(spark):
    frame = spark.createDataFrame([(None, 1), (2, None), (3, 3)], "x int, z int")
    np.testing.assert_array_equal(values(frame, ["x", "z"], na="drop"), [[3], [3]])
    np.testing.assert_array_equal(values(frame, na=-1), [-1, 2, 3])


def test_shuffled_batches_are_the_same_for_any_number_of_workers(table):
    options = {"features": ["id"], "shuffle": True, "memory_bytes": SMALL}
    one = np.concatenate(batches(table[0], 1, **options))
    np.testing.assert_array_equal(np.concatenate(batches(table[0], 3, **options)), one)
    np.testing.assert_array_equal(np.sort(one), np.arange(ROWS))


def test_folders_on_other_machines_are_removed_there(spark, tmp_path):
    (tmp_path / "there").mkdir()
    _remove_on_executors(spark, [str(tmp_path / "there"), str(tmp_path / "nowhere")])
    assert not (tmp_path / "there").exists()


def test_an_error_of_the_job_leaves_nothing(spark):
    broken = spark.range(10).select(raise_error(lit("no such row")).alias("x"))
    with pytest.raises(Exception, match="no such row"):
        values(broken)
    with pytest.raises(DataError, match="no rows"):
        values(spark.range(0), ["id"])
