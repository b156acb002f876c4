"""A Spark cluster of two machines loses processes, executors and machines; a run on it loses nothing but time."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from seamline.engines.spark import StandaloneCluster
from seamline.engines.spark.session import session
from seamline.orca import RetryPolicy, init_orca_context
from seamline.orca.callbacks import Callback
from tests.engines.spark_cluster import LIGHT, wait_for_slots
from tests.orca.kills import KillAbove, assert_as_calm, fit, fit_calmly, wait_for

pytestmark = pytest.mark.slow

KILLS = [
    KillAbove(victim="worker", rank=0, phase="checkpoint", attempt=0),
    KillAbove(victim="host", rank=1, phase="start", attempt=1),
    KillAbove(victim="executor", rank=0, step=6, attempt=2),
    KillAbove(victim="node", rank=1, phase="join", attempt=3),
]


ALONE = {"deterministic": True, "epochs": 4}
"""For runs whose weights are to be the same whatever the number of workers."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    return fit_calmly(tmp_path_factory.mktemp("calm"))


@pytest.fixture(scope="module")
def calm_alone(tmp_path_factory):
    return fit_calmly(tmp_path_factory.mktemp("alone"), workers=1, **ALONE)


@pytest.fixture(scope="module")
def cluster(calm, calm_alone):
    """Two machines with room for one worker each."""
    with StandaloneCluster(workers=2, cores_per_worker=1, memory="512m") as cluster:
        spark = session({**cluster.conf, **LIGHT})
        try:
            with pytest.MonkeyPatch.context() as patch, init_orca_context("spark"):
                patch.setenv("OMP_NUM_THREADS", "1")
                yield cluster, spark
        finally:
            spark.stop()


@contextmanager
def a_node_comes_after(folder, pattern, cluster, spark):
    """Start another machine as soon as there is such a file, and leave a file when it can be used."""

    def bring():
        wait_for(folder, pattern)
        cluster.add_worker()
        wait_for_slots(spark, 2)
        (folder / "room").touch()

    wait_for_slots(spark, 2)
    with ThreadPoolExecutor(1) as aside:
        coming = aside.submit(bring)
        yield
        coming.result()


def test_kills_of_all_kinds_cost_nothing_but_time(cluster, calm, tmp_path, capsys):
    kills = [replace(kill, marks=str(tmp_path)) for kill in KILLS]
    with a_node_comes_after(tmp_path, "node-*", *cluster):
        survivor = fit(tmp_path / "model", *kills, retry=RetryPolicy(failures=len(kills), wait_s=0), verbose=1)
    assert {path.name for path in tmp_path.glob("*-killed")} == {f"{kill}-killed" for kill in kills}
    assert capsys.readouterr().out.count("; the run starts again") == len(kills)
    assert_as_calm(survivor, calm)


class WaitAlone(Callback):
    """Notes each step with the number of workers that did it; one alone waits until there is room for another."""

    steers = False
    everywhere = True

    def __init__(self, folder):
        self.folder = str(folder)

    def on_step_end(self, run):
        (Path(self.folder) / f"{run.step}-of-{run.world.size}").touch()
        if run.world.size == 1:
            wait_for(Path(self.folder), "room")
            time.sleep(0.1)  # so that the driver has heard of a checkpoint before the run is over


def test_a_run_goes_on_with_fewer_workers_and_grows_again(cluster, calm_alone, tmp_path):
    kill = KillAbove(victim="node", rank=1, step=6, marks=str(tmp_path))
    with a_node_comes_after(tmp_path, "*-of-1", *cluster):
        survivor = fit(tmp_path / "model", kill, workers=(1, 2), callbacks=[WaitAlone(tmp_path)], **ALONE)
    done = {tuple(map(int, path.name.split("-of-"))) for path in tmp_path.glob("*-of-*")}
    alone = [step for step, size in done if size == 1]
    assert alone
    assert (min(alone) - 1, 2) in done, "it began with one worker"
    assert max(done)[1] == 2, "it has not grown again"
    assert_as_calm(survivor, calm_alone)
