"""XShards on a Spark cluster whose executors are processes of their own: what is there twice must meet."""

import os

import pandas as pd
import psutil
import pytest
from pandas.testing import assert_frame_equal

from seamline.engines.spark import StandaloneCluster
from seamline.engines.spark.session import session
from seamline.orca import XShards
from tests.engines.spark_cluster import LIGHT, wait_for_slots

FLIGHTS = pd.DataFrame({"carrier": ["AA", "UA", "AA", None, "DL", "UA"], "delay": [3.0, None, 5.0, 1.0, 2.0, 7.0]})
NAMES = pd.DataFrame({"carrier": ["UA", "AA", "B6"], "name": ["United", "Américan", "JetBlue"]})


@pytest.fixture(scope="module")
def spark():
    """One node with two executors of one slot each, so that two shards are in two processes."""
    with StandaloneCluster(workers=1, cores_per_worker=2, memory="1200m") as cluster:
        conf = {**LIGHT, "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.locality.wait": "0"}
        spark = session({**cluster.conf, **conf})
        try:
            wait_for_slots(spark, 2)
            yield spark
        finally:
            spark.stop()


@pytest.fixture(scope="module")
def shards(spark):
    """Flights and names that lie in two executors, as their own DataFrames gave them."""

    def there(frame):
        plain = frame.astype(object).where(frame.notna(), None)  # a null is none of pandas' kinds
        rows = [tuple(row) for row in plain.itertuples(index=False)]
        kinds = ", ".join(f"{name} {'double' if frame[name].dtype == float else 'string'}" for name in frame)
        return XShards.from_spark(spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), kinds))

    return there(FLIGHTS), there(NAMES)


def test_shards_lie_in_two_executors_and_not_in_the_driver(shards):
    def where(_shard):
        worker = psutil.Process(os.getpid())
        return next(p.pid for p in worker.parents() if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline()))

    flights, _ = shards
    assert flights.num_partitions() == 2
    assert len(set(flights.transform_shard(where).collect())) == 2


def test_a_table_comes_back_as_it_was_and_so_do_its_parts(shards):
    flights, _ = shards
    assert_frame_equal(flights.to_pandas(), FLIGHTS)
    assert [len(part) for part in flights.repartition(3).collect()] == [2, 2, 2]
    assert_frame_equal(flights.repartition(3).to_pandas(), FLIGHTS)
    parts = flights.partition_by("carrier", 3).collect()
    homes = [set(part["carrier"].dropna()) for part in parts]
    assert set().union(*homes) == {"AA", "DL", "UA"}
    assert sum(map(len, homes)) == 3, "one carrier lies in two shards"


def test_rows_of_two_executors_meet_in_joins_and_groups(shards):
    flights, names = shards
    joined = flights.merge(names, how="left", on="carrier")
    assert_frame_equal(joined.to_pandas(), FLIGHTS.merge(NAMES, how="left", on="carrier"))
    totals = joined.group_by("carrier", {"delay": ["mean", "count"]}).to_pandas()
    expected = FLIGHTS.groupby("carrier")["delay"].agg(["mean", "count"]).add_prefix("delay_").reset_index()
    assert_frame_equal(totals, expected)


def test_shards_become_a_dataframe_of_the_cluster_and_files(shards, tmp_path):
    flights, _ = shards
    df = flights.transform_shard(lambda frame: frame.assign(twice=2 * frame["delay"])).to_spark_df()
    assert df.rdd.getNumPartitions() == 2
    assert {row["carrier"]: row["n"] for row in df.selectExpr("carrier", "count(*) over () as n").collect()}["DL"] == 6
    assert df.selectExpr("sum(twice)").first()[0] == 36.0
    for url in (tmp_path / "saved", f"file://{tmp_path}/url"):
        flights.save(url)
        assert_frame_equal(XShards.load(url).to_pandas(), FLIGHTS)
