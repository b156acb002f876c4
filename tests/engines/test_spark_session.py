"""Spark sessions: what is refused, in a sentence, before anything runs."""

import pytest

from seamline.core.errors import SeamlineError
from seamline.engines.spark import SparkEngine, StandaloneCluster
from seamline.engines.spark.session import active, session
from tests.engines.spark_cluster import LIGHT

pytestmark = pytest.mark.slow


@pytest.fixture
def stopped_afterwards():
    yield
    spark = active()
    if spark is not None:
        spark.stop()


@pytest.mark.usefixtures("stopped_afterwards")
def test_executors_that_come_and_go_are_refused():
    elastic = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.shuffleTracking.enabled": "true"}
    with StandaloneCluster(workers=1) as cluster:
        spark = session({**LIGHT, **cluster.conf, **elastic})
        with pytest.raises(SeamlineError, match=r"allocates executors dynamically.*dynamicAllocation.enabled=false"):
            SparkEngine(spark).run(lambda world, shard: shard, [1, 2])
        spark.stop()


def test_settings_that_spark_refuses_are_one_sentence():
    with pytest.raises(SeamlineError, match=r"^Spark did not start with nowhere: .*nowhere") as caught:
        session({**LIGHT, "spark.master": "nowhere"})
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("stopped_afterwards")
def test_an_engine_stops_the_session_that_it_has_started():
    engine = SparkEngine(conf={**LIGHT, "spark.master": "local[2]"})
    assert engine.map(lambda item: item + 1, [1, 2]) == [2, 3]
    assert active() is engine.session
    engine.close()
    engine.close()
    assert active() is None
