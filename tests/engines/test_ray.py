"""The Ray engine: the engine contract on one small cluster, and what actors owe beyond it."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import ray

from seamline.core import registry
from seamline.core.errors import RunTimeoutError, WorkerError
from seamline.engines.ray import RayEngine, order
from seamline.engines.ray.cluster import TooFewCpusError
from seamline.testing import EngineContract
from tests.engines.faults import (
    ENDED_WITHIN_S,
    Strike,
    exit_without_a_word,
    fail,
    kill_the_other,
    program,
    still_running,
)
from tests.engines.inventory import is_nursery


@pytest.fixture(scope="module")
def cluster():
    """One Ray for all tests: more logical CPUs than cores, because most workers only wait."""
    engine = RayEngine(cores=4)
    engine.map(abs, [0])
    yield engine
    engine.close()
    assert not ray.is_initialized()


class TestRayEngine(EngineContract):
    setup = "from seamline.engines.ray import RayEngine; engine = RayEngine(cores=4)"

    @pytest.fixture
    def engine(self, cluster):
        return cluster


# What a worker is given


def test_a_worker_is_a_fresh_main_thread_with_its_share_of_the_cores(cluster, monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "5")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def look(world, shard):
        import threading

        main = threading.current_thread() is threading.main_thread()
        return main, os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"], world.host

    threads = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert cluster.run(look, [0, 0]) == [(True, threads, "5", "127.0.0.1")] * 2


def parents(world, shard):
    parent = psutil.Process().parent()
    return parent.pid, is_nursery(parent)


def test_workers_are_forks_also_after_their_nursery_was_killed(cluster):
    ((first, is_one), _) = cluster.run(parents, [0, 0])
    assert is_one
    assert cluster.run(parents, [0, 0]) == [(first, True)] * 2
    nursery = psutil.Process(first)
    nursery.kill()
    nursery.wait(10)
    ((second, is_one), _) = cluster.run(parents, [0, 0])
    assert is_one
    assert second != first


def test_a_worker_starts_without_a_nursery_where_nobody_opens(tmp_path):
    words = [sys.executable, "-I", "-S", order.__file__, str(tmp_path / "door"), sys.executable, "-c", "print(6 * 7)"]
    assert subprocess.run(words, capture_output=True, check=True, text=True).stdout == "42\n"


OWN_ENVIRONMENT = """
import os
from seamline.engines.ray import RayEngine
from tests.engines.test_ray import parents
engine = RayEngine(cores=1, options={"runtime_env": {"env_vars": {"COLOUR": "red"}}})
print(engine.run(lambda world, shard: (os.environ["COLOUR"], parents(world, shard)[1]), [0]))
engine.close()
"""


def test_workers_have_the_environment_of_the_program_if_it_has_given_ray_one():
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}  # of another Ray
    words = [sys.executable, "-c", OWN_ENVIRONMENT]
    found = subprocess.run(words, capture_output=True, check=True, text=True, env=own, timeout=100)
    assert "[('red', False)]" in found.stdout


def test_an_array_that_all_workers_get_is_put_into_the_store_once(cluster, monkeypatch):
    puts = []
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: puts.append(getattr(value, "nbytes", 0)) or put(value))
    array = np.ones(1_000_000)
    assert cluster.run(lambda world, shard: float(shard["x"].sum()), [{"x": array}, {"x": array}]) == [1e6, 1e6]
    assert puts.count(array.nbytes) == 1


def test_what_workers_print_comes_out_with_their_rank(cluster, capsys):
    def speak(world, shard):
        print("the same from everybody")

    cluster.run(speak, [0, 0])
    heard = ""
    deadline = time.monotonic() + ENDED_WITHIN_S
    while heard.count("the same from everybody") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # Ray's log monitor brings lines a little later
        captured = capsys.readouterr()
        heard += captured.out + captured.err
    lines = [line for line in heard.splitlines() if "the same from everybody" in line]
    assert sorted("worker 0" in line for line in lines) == [False, True]
    assert sorted("worker 1" in line for line in lines) == [False, True]


# Room


def test_too_many_workers_are_refused_in_one_sentence_before_any_starts(cluster):
    with pytest.raises(
        TooFewCpusError, match=r"5 workers with 1 CPU each need 5 CPUs at once, but of the 4 CPUs"
    ) as no:
        cluster.run(lambda world, shard: 0, [0] * 5)
    assert "use fewer workers" in str(no.value)


def test_cpus_that_others_use_are_waited_for_and_then_missed(cluster):
    class Holder:
        def ready(self):
            return True

    holder = ray.remote(Holder).options(num_cpus=3).remote()
    ray.get(holder.ready.remote())
    before = time.monotonic()
    with pytest.raises(TooFewCpusError, match=r"of the 4 CPUs of this Ray cluster 1 are free"):
        RayEngine(start_within_s=0.5).run(lambda world, shard: 0, [0, 0])
    assert time.monotonic() - before < ENDED_WITHIN_S
    ray.kill(holder)
    assert cluster.run(lambda world, shard: shard, [1, 2]) == [1, 2], "a failed start has kept its CPUs"


def test_an_engine_leaves_a_ray_that_it_was_handed_running(cluster):
    second = registry.engine("ray")
    assert second.map(abs, [-1]) == [1]
    second.close()
    assert ray.is_initialized()
    assert cluster.map(abs, [-2]) == [2]


def test_cores_of_a_foreign_ray_cannot_be_chosen():
    with pytest.raises(ValueError, match=r"the one at '10.0.0.1:6379' has the cores it has"):
        RayEngine("10.0.0.1:6379", cores=3)


# Faults


@pytest.mark.parametrize(
    ("fault", "words"),
    [(fail, "bad row 7"), (exit_without_a_word, "called os._exit"), (kill_the_other, "its process was killed")],
)
def test_a_worker_that_is_gone_is_named_and_the_others_go_too(cluster, fault, words, tmp_path):
    strike = Strike(fault, tmp_path)
    with pytest.raises(WorkerError, match=words) as caught:
        cluster.run(strike, [0, 0])
    assert strike.seconds_since() < ENDED_WITHIN_S
    assert caught.value.rank == 1
    assert still_running(strike.pids, within_s=2) == []


def test_the_children_of_a_failed_worker_go_with_it(cluster, tmp_path):
    def fail_with_child(world, shard):
        child = subprocess.Popen(["sleep", "300"])
        (tmp_path / str(world.rank)).write_text(str(child.pid))
        world.all_gather("both have a child")
        if world.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    with pytest.raises(WorkerError):
        cluster.run(fail_with_child, [0, 0])
    assert still_running([int((tmp_path / rank).read_text()) for rank in "01"], within_s=5) == []


def test_a_released_broadcast_cannot_be_read_and_says_so(cluster):
    handle = cluster.broadcast("secret")
    assert cluster.map(lambda item: handle.value, [0]) == ["secret"]
    handle.release()
    with pytest.raises(WorkerError, match="was released"):
        cluster.map(lambda item: handle.value, [0])


def test_a_run_that_takes_too_long_is_stopped_and_says_who_is_late(cluster):
    with pytest.raises(RunTimeoutError, match=r"not done after 1 s; still at work: worker (0, )?1"):
        RayEngine(timeout_s=1).run(lambda world, shard: time.sleep(shard), [0, 60])


PROGRAM = """
import sys
from pathlib import Path
from seamline.engines.ray import RayEngine, order
from tests.engines.faults import note_and_wait
engine = RayEngine(cores=2)
try:
    engine.run(note_and_wait(Path(sys.argv[1])), [0, 0])
finally:
    engine.close()
"""


@pytest.mark.parametrize("fault", ["the driver is killed", "Ctrl-C", "the raylet is killed"])
def test_nothing_is_left_when(fault, tmp_path):
    with program(PROGRAM, tmp_path) as (driver, inventory):
        raylet = next(process for process in inventory.processes if process.name().startswith("raylet"))
        strike, last_word = {
            "the driver is killed": (driver.kill, ""),
            "Ctrl-C": (lambda: os.killpg(driver.pid, signal.SIGINT), "KeyboardInterrupt"),
            "the raylet is killed": (raylet.kill, "Ray's node process (raylet) has ended or was killed"),
        }[fault]
        before = time.monotonic()
        strike()
        driver.wait(ENDED_WITHIN_S)
        assert inventory.left(within_s=ENDED_WITHIN_S - (time.monotonic() - before)) == []
        assert last_word in (tmp_path / "said").read_text()
