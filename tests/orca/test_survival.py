"""A worker killed on a cluster costs time there too: the run ends with the weights of an undisturbed one."""

import signal

import pytest

from seamline.orca import RetryPolicy, init_orca_context, stop_orca_context
from seamline.testing.faults import Kill, Stall
from tests.orca.kills import KillAbove, assert_as_calm, fit, fit_calmly
from tests.orca.networks import assert_same_weights

MODES = {"local[2]": {}, "ray": {"cores": 2}}
FAULTS = [
    Kill(rank=1, phase="start"),
    Kill(rank=0, step=6),
    Kill(rank=1, phase="finish"),
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return fit_calmly(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module", params=MODES)
def cluster(undisturbed, request):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        with init_orca_context(request.param, **MODES[request.param]) as context:
            yield context
    stop_orca_context()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.phase} {fault.step}, rank {fault.rank}")
def test_a_killed_run_goes_on_to_the_weights_of_an_undisturbed_one(cluster, undisturbed, fault, tmp_path):
    assert_as_calm(fit(tmp_path, fault), undisturbed)


def test_a_worker_that_is_told_to_end_is_no_failure(cluster, undisturbed, tmp_path):
    taken = Kill(rank=0, step=6, how=signal.SIGTERM)
    assert_as_calm(fit(tmp_path, taken, retry=RetryPolicy(failures=0, preemptions=1, wait_s=0)), undisturbed)


def test_a_worker_that_stalls_is_named(cluster, tmp_path):
    with pytest.raises(TimeoutError, match=r"missing: worker 1\."):
        fit(tmp_path, Stall(rank=1, step=3), timeout_s=1)


def test_the_same_bits_with_one_worker_or_two(cluster, tmp_path):
    assert_same_weights(fit(tmp_path / "one", workers=1, deterministic=True), fit(tmp_path / "two", deterministic=True))


@pytest.mark.parametrize("cluster", ["ray"], indirect=True)
def test_a_ray_of_our_own_that_is_killed_is_started_again(cluster, undisturbed, tmp_path):
    survivor = fit(tmp_path / "model", KillAbove(victim="host", rank=0, step=6, marks=str(tmp_path)))
    assert_as_calm(survivor, undisturbed)
    assert list(tmp_path.glob("*-killed"))
