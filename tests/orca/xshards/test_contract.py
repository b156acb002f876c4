"""XShards and what they stand on, in one process, in several, on Spark and on Ray."""

import tempfile

import numpy as np
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal

from seamline.core.errors import DataError, ShardError
from seamline.data.arrow.staging import PREFIX
from seamline.orca import OrcaContext, XShards, init_orca_context
from seamline.testing import CollectionContract, RemoteCollectionContract, XShardsContract
from seamline.testing.xshards_contract import table
from tests.data.reading import assert_same_batches
from tests.data.tables import SMALL, batches, values
from tests.engines.spark_cluster import LIGHT

CONTEXTS = {
    "local": {"cluster_mode": "local", "cores": 2},
    "spark": {"cluster_mode": "spark", "cores": 2, "conf": {**LIGHT, "spark.sql.shuffle.partitions": "2"}},
    "ray": {"cluster_mode": "ray", "cores": 2},
}


@pytest.fixture(scope="module", params=list(CONTEXTS))
def context(request):
    """One of each for all tests; pytest runs all tests of one before it opens the next."""
    with init_orca_context(**CONTEXTS[request.param]) as context:
        yield context


@pytest.fixture
def engine(context):
    return context.engine(2)


class TestShardsInThisProcess(CollectionContract):
    @pytest.fixture
    def engine(self):
        from seamline.engines.inline import InlineEngine

        return InlineEngine()


class TestShardsApart(RemoteCollectionContract):
    pass


class TestXShardsInThisProcess(XShardsContract):
    pass


@pytest.mark.usefixtures("context")
class TestXShards(XShardsContract):
    pass


# Tables of the engines' own libraries


def timeless(frame):
    """Spark's times have microseconds."""
    return frame.assign(time=frame["time"].dt.as_unit("us"), zoned=frame["zoned"].dt.as_unit("us"))


on_spark = pytest.mark.parametrize("context", ["spark"], indirect=True)
on_ray = pytest.mark.parametrize("context", ["ray"], indirect=True)


@on_spark
def test_a_spark_dataframe_becomes_frames_partition_by_partition_and_back(context):
    frame = timeless(table())
    shards = XShards.from_items([frame.iloc[:20], frame.iloc[:0], frame.iloc[20:]], _itself)
    df = shards.to_spark_df()
    assert df.schema.simpleString() == (
        "struct<word:string,colour:string,time:timestamp_ntz,zoned:timestamp,number:bigint,small:tinyint,"
        "value:double,single:float,flag:boolean>"
    )
    assert df.rdd.getNumPartitions() == 3
    back = XShards.from_spark(df).cache()
    assert [len(shard) for shard in back.collect()] == [20, 0, 17]
    found = back.to_pandas()
    expected = frame.assign(colour=frame["colour"].astype("str"))
    found["zoned"] = found["zoned"].dt.tz_convert("Europe/Zurich")
    assert_frame_equal(found, expected)
    totals = df.where("number > 0").groupBy("flag").count().toArrow().to_pylist()
    expected_totals = frame[frame["number"] > 0].groupby("flag").size().to_dict()
    assert {row["flag"]: row["count"] for row in totals} == expected_totals


@on_spark
def test_arrays_in_a_spark_dataframe_stay_arrays(context):
    df = (
        OrcaContext.get_spark_session()
        .createDataFrame([(1, [1.0, 2.0]), (2, [3.0, 4.0]), (3, None)], "a int, b array<double>")
        .repartition(1)
    )
    frame = XShards.from_spark(df.where("b is not null")).to_pandas().sort_values("a")
    np.testing.assert_array_equal(np.stack(frame["b"]), [[1.0, 2.0], [3.0, 4.0]])


@on_ray
def test_a_ray_dataset_becomes_frames_block_by_block_and_back(context):
    frame = table().drop(columns="colour")
    shards = XShards.from_items([frame.iloc[:20], frame.iloc[20:]], _itself)
    ds = shards.to_ray()
    assert ds.count() == 37
    back = XShards.from_ray(ds)
    assert back.num_partitions() == 2
    assert_frame_equal(back.to_pandas(), frame)


@on_ray
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_ray_dataset_is_read_in_its_order_and_leaves_nothing(context, tmp_path, monkeypatch):
    import ray.data

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ray.data.DataContext.get_current(), "enable_progress_bars", False)
    rows = 300
    whole = pa.table({"x": np.arange(rows), "z": np.arange(rows) / 2, "name": ["a", "b"] * (rows // 2)})
    parts = [whole.slice(0, 10), whole.slice(10, 0), whole.slice(10, 200), whole.slice(210)]
    data = ray.data.from_arrow(parts)
    np.testing.assert_array_equal(values(data), np.arange(rows))
    options = {"shuffle": True, "memory_bytes": SMALL}
    assert_same_batches(batches(data, 3, **options), batches(data, 1, **options))
    with pytest.raises(DataError, match="column 'name' holds strings"):
        values(data, ["name"])
    tensors = ray.data.from_numpy(np.arange(24.0).reshape(4, 3, 2))
    np.testing.assert_array_equal(values(tensors, ["data"]), np.arange(24.0).reshape(4, 3, 2))
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


@on_spark
def test_a_dataframe_leaves_a_failing_transform_as_what_it_is(context):
    def fail(shard):
        raise KeyError("no such thing")

    shards = XShards.partition(table(), 2).transform_shard(fail)
    with pytest.raises(ShardError, match=r"fail failed on shard 0 \(rows 0 to 18\)"):
        shards.to_spark_df()


def _itself(part):
    return part
