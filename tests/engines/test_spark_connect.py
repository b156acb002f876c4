"""The Spark engine as a client of Spark Connect: the contracts of every engine, without a JVM in this process."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
import torch
from torch import nn

from seamline.core.errors import SeamlineError, WorkerError, WorkerLostError
from seamline.engines.spark import SparkEngine, held
from seamline.engines.spark.held import Holder
from seamline.engines.spark.session import active, quiet, start
from seamline.orca import Estimator, OrcaContext, XShards, init_orca_context
from seamline.testing import EngineContract, RemoteCollectionContract
from tests.engines.connect_server import MODE, connect_server, connect_session
from tests.engines.faults import (
    ENDED_WITHIN_S,
    JVM,
    Killer,
    assert_a_killed_python_is_named,
    note_and_wait,
    program,
    still_running,
    wait_for_notes,
)
from tests.engines.spark_cluster import ONE_PROCESS
from tests.engines.training import assert_learns_what_local_processes_learn
from tests.orca.networks import assert_same_weights

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    with connect_server(ONE_PROCESS) as address:
        yield address


@pytest.fixture(scope="module")
def spark(server):
    with connect_session(server) as session:
        yield session


@pytest.fixture
def engine(spark):
    engine = SparkEngine(spark)
    yield engine
    engine.close()


class TestSparkEngineOfAClient(EngineContract):
    @pytest.fixture(autouse=True)
    def _program(self, server):
        type(
            self
        ).setup = (
            f"from seamline.engines.spark import SparkEngine\nengine = SparkEngine(conf={{'spark.remote': {server!r}}})"
        )


class TestShardsOfAClient(RemoteCollectionContract):
    pass


def test_two_workers_learn_to_the_bit_what_they_learn_in_local_processes(engine, monkeypatch):
    assert_learns_what_local_processes_learn(engine, monkeypatch)


# Room, and what is left


def test_too_many_workers_are_refused_before_anything_starts(engine, tmp_path):
    before = time.monotonic()
    with pytest.raises(SeamlineError, match=r"9 workers asked, but the cluster has 4 free slots; use fewer workers"):
        engine.run(lambda world, shard: (tmp_path / "started").touch(), range(9))
    assert time.monotonic() - before < 5
    assert not list(tmp_path.iterdir())


def test_no_jvm_is_started_by_this_process_and_nothing_more_listens_after_a_run(engine):
    def jvms():
        return [child for child in psutil.Process().children() if child.name() == "java"]

    def listening():
        return {c.laddr for c in psutil.Process().net_connections("tcp") if c.status == psutil.CONN_LISTEN}

    before = jvms(), listening()
    engine.run(lambda world, shard: 0, [0, 0])
    engine.map(lambda item: item, [0, 0])
    assert (jvms(), listening()) == before


def test_the_session_of_the_user_is_used_and_left_running(spark):
    engine = SparkEngine()
    assert engine.map(lambda item: item + 1, [1]) == [2]
    assert engine.session is spark
    engine.close()
    assert active() is spark
    assert spark.range(3).count() == 3


# Values that tasks read


def test_a_broadcast_reaches_workers_that_meet_and_nobody_once_released(engine):
    handle = engine.broadcast({"array": np.arange(100_000)})
    assert engine.run(lambda world, shard: int(handle.value["array"][shard]), [5, 99_999]) == [5, 99_999]
    handle.release()
    with pytest.raises(WorkerError, match="was released, or its program has ended"):
        engine.run(lambda world, shard: handle.value, [0])


def test_a_process_forgets_what_was_released_when_it_reads_the_next_value(monkeypatch):
    holder = Holder("127.0.0.1", "127.0.0.1")
    first, second = holder.put("first"), holder.put("second")
    monkeypatch.setattr(held, "_opened", {})  # as in another process
    assert (first.value, second.value) == ("first", "second")
    key = next(iter(held._opened))
    holder._values.pop(key[1])  # released, and nobody has told this process
    assert holder.put("third")._fetch() == "third"
    assert key not in held._opened
    holder.close()
    with pytest.raises(ValueError, match="its program has ended"):
        first._fetch()


def test_a_function_may_write_to_what_it_holds_and_the_next_task_does_not_see_it(engine):
    weights = np.zeros(100_000)

    def write(item):
        weights[:] += item
        return float(weights[0])

    assert engine.map(write, [1, 2, 3, 4, 5, 6]) == [1, 2, 3, 4, 5, 6]


# Faults


def test_a_killed_python_of_spark_is_named_and_nothing_stays(engine, tmp_path):
    assert_a_killed_python_is_named(engine, tmp_path)


PROGRAM = """
import sys
from pathlib import Path
from seamline.orca import init_orca_context
from tests.engines.faults import note_and_wait
with init_orca_context("spark", conf={"spark.remote": sys.argv[2]}) as context:
    context.engine(2).run(note_and_wait(Path(sys.argv[1])), [0, 0])
"""


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_the_job_of_a_program_ends_with_it(signal_number, server, engine, tmp_path):
    with program(PROGRAM, tmp_path, server) as (driver, inventory):
        workers = [pid for note in wait_for_notes(tmp_path) for pid in note[:2]]
        os.killpg(driver.pid, signal_number)
        driver.wait(ENDED_WITHIN_S)
        assert still_running(workers, within_s=ENDED_WITHIN_S) == []
        assert inventory.left(within_s=2) == []
        last_word = "KeyboardInterrupt" if signal_number is signal.SIGINT else ""
        assert last_word in (tmp_path / "said").read_text()
    assert engine.run(lambda world, shard: world.size, [0] * 4) == [4] * 4, "all slots are free again"


def test_a_server_that_dies_is_named(tmp_path):
    with connect_server(ONE_PROCESS) as address, connect_session(address, release=False) as session:
        killer = Killer(tmp_path, rank=1, which=JVM)
        with pytest.raises(WorkerLostError, match=r"the Spark task of worker . has ended without a word"):
            SparkEngine(session).run(note_and_wait(tmp_path), [0, 0])
        assert killer.seconds_since() < ENDED_WITHIN_S
        pids = [pid for note in wait_for_notes(tmp_path) for pid in note]
        assert still_running(pids, within_s=2) == []


# Getting there


def test_a_server_that_is_not_there_is_named_at_once():
    with pytest.raises(SeamlineError, match=r"no Spark Connect server answers at sc://127.0.0.1:1 \("):
        start({"spark.remote": "sc://127.0.0.1:1"})


def test_a_missing_package_is_named_with_the_command_that_brings_it():
    text = """
import sys
sys.modules["grpc_status"] = None
from seamline.engines.spark import SparkEngine
SparkEngine(conf={"spark.remote": sys.argv[1]}).map(len, ["a"])
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"sc://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-c", text, address]
        outside = {key: value for key, value in os.environ.items() if key != MODE}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=outside)
    last = done.stderr.splitlines()[-1]
    assert "grpcio-status" in last
    assert last.endswith('pip install "pyspark[connect]"')


# Data and the context


@pytest.fixture
def frame(spark):
    pairs = pa.array([[number, -number] for number in range(20)], pa.list_(pa.float32()))
    table = pa.table({"a": np.arange(20, dtype="float32"), "b": np.arange(20) % 3, "pair": pairs})
    with quiet():
        return spark.createDataFrame(table).repartition(3)


def test_a_data_frame_becomes_shards_and_shards_a_data_frame(frame):
    shards = XShards.from_spark(frame)
    doubled = shards.transform_shard(lambda part: part.assign(a=part["a"] * 2))
    back = doubled.to_spark_df()
    assert sorted(row["a"] for row in back.collect()) == [2.0 * number for number in range(20)]
    assert back.sparkSession is frame.sparkSession


def test_partitions_without_rows_do_not_matter(spark, frame):
    few = frame.where("a = 7")
    collected = pd.concat(XShards.from_spark(few).collect())
    assert collected["a"].tolist() == [7.0]


def test_an_estimator_trains_on_a_data_frame_of_the_session_there_is(spark, frame):
    def train():
        model = nn.Linear(2, 3)
        with torch.no_grad():
            model.weight.zero_()
            model.bias.zero_()
        estimator = Estimator.from_torch(
            model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.01), loss=nn.CrossEntropyLoss()
        )
        return estimator.fit(
            frame, epochs=1, batch_size=10, workers=2, verbose=0, feature_cols=["pair"], label_cols=["b"], shuffle=False
        )

    with init_orca_context("spark"):
        assert OrcaContext.get_spark_session() is spark
        there = train()
    assert_same_weights(there, train())
    assert active() is spark
