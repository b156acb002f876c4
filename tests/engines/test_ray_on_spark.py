"""Ray inside Spark: what an engine owes on two executors, and what is left when one of its processes is killed."""

import os
import signal
import time

import pytest
import ray

from seamline.core.errors import SeamlineError, WorkerError, WorkerLostError
from seamline.engines.clusters.ray_on_spark import open_ray_on_spark
from seamline.engines.clusters.spark import SparkCluster
from seamline.orca import init_orca_context
from seamline.testing import EngineContract
from tests.engines.faults import (
    ENDED_WITHIN_S,
    PARENT,
    Killer,
    Strike,
    exit_without_a_word,
    fail,
    kill_the_other,
    note_and_wait,
    program,
    still_running,
    wait_for_notes,
)
from tests.engines.inventory import Inventory
from tests.engines.spark_cluster import on_a_cluster, wait_for_slots
from tests.orca.kills import KillAbove, assert_as_calm, fit, fit_calmly

pytestmark = pytest.mark.slow


class Rays:
    """Ray in the executors of one Spark session: opened when a test needs it, and again after a test has broken it."""

    def __init__(self, session):
        self.session = session
        self.cluster = self.inventory = None

    def open(self):
        if self.cluster is None:
            wait_for_slots(self.session, 4)
            self.inventory = Inventory()
            self.cluster = open_ray_on_spark(spark=SparkCluster(self.session, "of the tests"))
            self.inventory.mark = ("RAY_AUTH_TOKEN", os.environ["RAY_AUTH_TOKEN"])
            self.inventory.take()
            assert len(self.inventory.ports) > 4
        return self.cluster

    def close(self):
        """What is left afterwards."""
        cluster, self.cluster = self.cluster, None
        if cluster is None:
            return []
        cluster.close()
        assert not ray.is_initialized()
        assert "RAY_AUTH_TOKEN" not in os.environ
        left = self.inventory.left(within_s=ENDED_WITHIN_S)
        self.inventory.clean()
        return left


@pytest.fixture(scope="module")
def rays():
    """Two executors with two slots each: one for a Ray node of two CPUs, and one for Spark's own tasks."""
    with on_a_cluster() as (session, _):
        rays = Rays(session)
        yield rays
        assert rays.close() == []
        assert session.range(10).count() == 10, "Spark goes on"


@pytest.fixture
def engine(rays):
    return rays.open().engine(2)


class TestRayOnSpark:
    """Of the engine contract what could depend on who has started Ray's nodes, and where; all of it holds for Ray."""

    test_results_come_back_in_rank_order = EngineContract.test_results_come_back_in_rank_order
    test_gathered_values_are_in_rank_order_on_every_worker = (
        EngineContract.test_gathered_values_are_in_rank_order_on_every_worker
    )
    test_results_of_200_mb_arrive_whole = EngineContract.test_results_of_200_mb_arrive_whole
    test_reports_reach_the_driver = EngineContract.test_reports_reach_the_driver
    test_a_killed_worker_is_named_and_never_run_again = EngineContract.test_a_killed_worker_is_named_and_never_run_again
    test_functions_and_classes_of_main_need_no_guard = EngineContract.test_functions_and_classes_of_main_need_no_guard
    test_mapped_results_are_in_the_order_of_the_items = EngineContract.test_mapped_results_are_in_the_order_of_the_items
    test_an_exchange_transposes = EngineContract.test_an_exchange_transposes
    test_a_broadcast_reaches_tasks = EngineContract.test_a_broadcast_of_50_mb_reaches_tasks_and_is_fetched_once
    test_a_task_whose_process_is_killed_is_run_again = (
        EngineContract.test_a_task_whose_process_is_killed_is_run_again_alone
    )

    @pytest.fixture(autouse=True)
    def _program(self, engine):
        address = ray.get_runtime_context().gcs_address  # its secret is in the environment
        type(self).setup = f"from seamline.engines.ray import RayEngine; engine = RayEngine({address!r})"


def test_workers_are_spread_over_the_executors_and_spark_works_beside_them(rays, engine):
    def where(world, shard):
        return world.all_gather(ray.get_runtime_context().get_node_id())

    first, second = engine.run(where, [0, 0])
    assert first == second
    assert len(set(first)) == 2
    assert rays.session.range(100).count() == 100


# Faults


@pytest.mark.parametrize(
    ("fault", "words"),
    [(fail, "bad row 7"), (exit_without_a_word, "called os._exit"), (kill_the_other, "its process was killed")],
)
def test_a_worker_that_is_gone_is_named_and_the_others_go_too(engine, fault, words, tmp_path):
    strike = Strike(fault, tmp_path)
    with pytest.raises(WorkerError, match=words) as caught:
        engine.run(strike, [0, 0])
    assert strike.seconds_since() < ENDED_WITHIN_S
    assert caught.value.rank == 1
    assert still_running(strike.pids, within_s=2) == []


def test_a_lost_node_ends_the_run_and_ray_and_opening_it_again_helps(rays, engine, tmp_path):
    killer = Killer(tmp_path, rank=1, which=PARENT)
    words = "the raylet of a Ray node has ended or was killed"
    with pytest.raises(WorkerLostError, match=rf"(?s)Ray on Spark has ended \({words}\);.*call stop_orca_context\(\)"):
        engine.run(note_and_wait(tmp_path), [0, 0])
    assert killer.seconds_since() < ENDED_WITHIN_S
    for use in (lambda: engine.map(abs, [1]), rays.cluster.capacity):
        with pytest.raises(SeamlineError, match="Ray on Spark has ended"):
            use()
    assert "that has ended, inside Spark" in rays.cluster.description
    noted = [pid for note in wait_for_notes(tmp_path) for pid in note[: PARENT + 1]]
    assert rays.close() == []
    assert still_running(noted, within_s=0.1) == []


def test_training_goes_on_when_ray_is_lost_with_a_node_and_is_started_again(rays, tmp_path, capsys):
    kills = [
        KillAbove(victim="worker", rank=1, step=3, attempt=0, marks=str(tmp_path)),
        KillAbove(victim="executor", rank=0, phase="checkpoint", attempt=1, marks=str(tmp_path)),
    ]
    calm = fit_calmly(tmp_path / "calm")
    assert rays.close() == []
    with init_orca_context("spark", init_ray_on_spark=True):
        survivor = fit(tmp_path / "model", *kills, verbose=1)
    said = capsys.readouterr().out
    assert said.count("; another takes its place") == 1
    assert said.count("; the run starts again") == 1
    assert {path.name for path in tmp_path.glob("*-killed")} == {f"{kill}-killed" for kill in kills}
    assert_as_calm(survivor, calm)
    assert not ray.is_initialized()
    assert "RAY_AUTH_TOKEN" not in os.environ


PROGRAM = """
import sys
from pathlib import Path
from seamline.orca import init_orca_context
from tests.engines.faults import note_and_wait
from tests.engines.spark_cluster import LIGHT
with init_orca_context("local[2]", init_ray_on_spark=True, conf=LIGHT) as context:
    context.engine(2).run(note_and_wait(Path(sys.argv[1])), [0, 0])
"""


@pytest.mark.parametrize("fault", ["the driver is killed", "Ctrl-C"])
def test_nothing_is_left_when(fault, tmp_path):
    with program(PROGRAM, tmp_path) as (driver, inventory):
        before = time.monotonic()
        if fault == "Ctrl-C":
            os.killpg(driver.pid, signal.SIGINT)
        else:
            driver.kill()
        driver.wait(ENDED_WITHIN_S)
        assert inventory.left(within_s=ENDED_WITHIN_S - (time.monotonic() - before)) == []
        assert ("KeyboardInterrupt" in (tmp_path / "said").read_text()) == (fault == "Ctrl-C")
