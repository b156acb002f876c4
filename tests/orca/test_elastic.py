"""A run that may have several numbers of workers has as many as there is room for, and the same batches always."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import ray
from ray.cluster_utils import Cluster

from seamline.orca import RetryPolicy, init_orca_context
from seamline.orca.callbacks import Callback
from tests.orca.networks import ROWS, assert_same_weights, make_estimator, make_rows

BATCH, EPOCHS, SAVE_EVERY = 10, 4, 4


class Pause(Callback):
    """Waits now and then, so that there is time to do something to the cluster; marks where it is."""

    steers = False
    everywhere = True

    def __init__(self, folder, steps, seconds=0.15):
        self.folder, self.steps, self.seconds = folder, steps, seconds

    def on_step_end(self, run):
        (self.folder / f"{run.step}-of-{run.world.size}").touch()
        if run.step in self.steps:
            time.sleep(self.seconds)


def fit(model_dir, workers, **options):
    settings = {"checkpoint": SAVE_EVERY, "verbose": 0, "retry": RetryPolicy(wait_s=0), **options}
    settings |= {"epochs": EPOCHS, "batch_size": BATCH, "workers": workers, "deterministic": True}
    return make_estimator(model_dir).fit(make_rows(), **settings)


@pytest.fixture
def two_nodes():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster, node
    ray.shutdown()
    cluster.shutdown()


def sizes(folder):
    """With how many workers each step was done, where several did it the last."""
    return {int(size) for size in {path.name.split("-of-")[1] for path in folder.iterdir()}}


def test_a_run_goes_on_with_fewer_workers_and_grows_again(two_nodes, tmp_path):
    cluster, node = two_nodes
    undisturbed = fit(tmp_path / "calm", 1)
    steps = tmp_path / "steps"
    steps.mkdir()
    events = {"6-of-2": lambda: cluster.remove_node(node), "20-of-1": lambda: cluster.add_node(num_cpus=1)}
    with init_orca_context("ray"), ThreadPoolExecutor(1) as aside:  # nodes can be started from the main thread alone
        run = aside.submit(fit, tmp_path / "model", (1, 2), callbacks=[Pause(steps, range(6, 200))])
        for marker, disturb in events.items():
            while not (steps / marker).exists():
                assert not run.done(), f"the run was over before {marker}: {run.exception()}"
                time.sleep(0.02)
            disturb()
        survivor = run.result()
    assert sizes(steps) == {1, 2}
    last = max(int(path.name.split("-of-")[0]) for path in steps.iterdir())
    assert (steps / f"{last}-of-2").exists(), "the run has not grown again"
    assert_same_weights(survivor, undisturbed)
    survivor.ledger_.check(ROWS)


def test_a_run_leaves_others_what_they_use_and_grows_when_they_go(tmp_path):
    steps = tmp_path / "steps"
    steps.mkdir()
    undisturbed = fit(tmp_path / "calm", 1)
    with init_orca_context("ray", cores=2), ThreadPoolExecutor(1) as aside:
        other = ray.remote(num_cpus=1)(Other).remote()
        ray.get(other.__ray_ready__.remote())
        run = aside.submit(fit, tmp_path / "model", (1, 2), callbacks=[Pause(steps, range(6, 24))])
        while not (steps / "10-of-1").exists():
            assert not run.done(), run.exception()
            time.sleep(0.02)
        ray.kill(other)
        survivor = run.result()
    assert not (steps / "1-of-2").exists()
    assert sizes(steps) == {1, 2}
    assert_same_weights(survivor, undisturbed)


class Other:
    """Somebody else's work on the same cluster."""


def test_a_machine_has_room_for_as_many_workers_as_cores(tmp_path):
    steps = tmp_path / "steps"
    steps.mkdir()
    with init_orca_context("local", cores=2):
        fit(tmp_path / "model", (1, 5), callbacks=[Pause(steps, ())])
    assert sizes(steps) == {2}


@pytest.mark.parametrize("workers", [(0, 2), (3, 2), (1, 2, 3), ("1", 2)])
def test_numbers_that_are_no_range_are_refused(workers):
    with pytest.raises(ValueError, match=r"must be \(fewest, most\)"):
        fit(None, workers, checkpoint=None)
