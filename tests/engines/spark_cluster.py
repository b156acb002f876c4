"""Spark sessions for tests: in this process alone, and on a master with two workers of our own."""

import contextlib
import time

from seamline.engines.spark import StandaloneCluster
from seamline.engines.spark.access import access_to
from seamline.engines.spark.session import session

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""JVMs that start soon and need not be fast in the long run."""
LIGHT = {"spark.driver.extraJavaOptions": QUICK, "spark.executor.extraJavaOptions": QUICK}
ONE_PROCESS = {**LIGHT, "spark.master": "local[4]"}
HALF_THE_CLUSTER = {**LIGHT, "spark.executor.memory": "512m", "spark.executor.cores": "2", "spark.cores.max": "4"}
"""So that a second program finds room beside the tests' own session."""


@contextlib.contextmanager
def in_one_process():
    """A session in local mode and the settings with which another program makes one."""
    spark = session(ONE_PROCESS)
    try:
        yield spark, ONE_PROCESS
    finally:
        spark.stop()


@contextlib.contextmanager
def on_a_cluster():
    """A session with two executors of two slots each, and the settings for another."""
    with StandaloneCluster(workers=2, cores_per_worker=4, memory="1g") as cluster:
        conf = {**cluster.conf, **HALF_THE_CLUSTER}
        spark = session(conf)
        try:
            wait_for_slots(spark, 4)
            yield spark, conf
        finally:
            spark.stop()


def wait_for_slots(spark, number):
    deadline = time.monotonic() + 60
    access = access_to(spark)
    while access.slots() < number:
        assert time.monotonic() < deadline, "the executors did not come"
        time.sleep(0.05)
