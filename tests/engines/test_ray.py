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
import torch
from torch import nn

from seamline.core import registry
from seamline.core.errors import RunTimeoutError, WorkerError
from seamline.engines.local import LocalEngine
from seamline.engines.ray import RayEngine
from seamline.engines.ray.cluster import TooFewCpusError
from seamline.orca import Estimator, estimator
from seamline.testing import EngineContract
from tests.orca.networks import assert_same_weights, make_network, make_rows

ENDS_WITHIN_S = 10


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


def alive(processes):
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def still_running(processes, within_s):
    deadline = time.monotonic() + within_s
    while alive(processes) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive(processes)


# Same numbers


def test_two_actors_learn_to_the_bit_what_two_local_processes_learn(cluster, monkeypatch):
    def train(engine):
        monkeypatch.setattr(
            estimator, "_run", lambda task, shards, listen=None: engine.run(task, shards, listen=listen)
        )
        model = make_network(dropout=0.3)
        return Estimator.from_torch(
            model=model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01), loss=nn.CrossEntropyLoss()
        ).fit(make_rows(), epochs=2, batch_size=10, workers=2, verbose=0)

    on_ray, here = train(cluster), train(LocalEngine())
    assert_same_weights(on_ray, here)
    assert [epoch["loss"] for epoch in on_ray.history_] == [epoch["loss"] for epoch in here.history_]


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
    deadline = time.monotonic() + ENDS_WITHIN_S
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
    assert time.monotonic() - before < ENDS_WITHIN_S
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


def exit_without_a_word(world, shard):
    if world.rank == 1:
        os._exit(3)
    time.sleep(60)


def kill_the_other(world, shard):
    pids = world.all_gather(os.getpid())
    if world.rank == 0:
        os.kill(pids[1], signal.SIGKILL)
    time.sleep(60)


@pytest.mark.parametrize("fault", [exit_without_a_word, kill_the_other])
def test_a_worker_that_is_gone_is_named_and_the_others_go_too(cluster, fault, tmp_path):
    def note_and_do(world, shard):
        (tmp_path / str(world.rank)).write_text(str(os.getpid()))
        fault(world, shard)

    before = time.monotonic()
    with pytest.raises(WorkerError, match="its process was killed") as caught:
        cluster.run(note_and_do, [0, 0])
    assert caught.value.rank == 1
    assert time.monotonic() - before < ENDS_WITHIN_S
    deadline = time.monotonic() + 2
    pids = [int((tmp_path / rank).read_text()) for rank in "01"]
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(psutil.pid_exists, pids))


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
    children = [psutil.Process(pid) for rank in "01" if psutil.pid_exists(pid := int((tmp_path / rank).read_text()))]
    left = still_running(children, within_s=5)
    for child in left:
        child.kill()
    assert left == []


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
import os, sys, time
from pathlib import Path
from seamline.engines.ray import RayEngine
folder = Path(sys.argv[1])
def work(world, shard):
    (folder / f"{world.rank}").write_text(str(os.getpid()))
    time.sleep(300)
engine = RayEngine(cores=2)
try:
    engine.run(work, [0, 0])
finally:
    engine.close()
"""


@pytest.fixture
def program(tmp_path):
    """A driver with a Ray of its own and two workers, and all processes that descend from it once they run."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    with (tmp_path / "stderr").open("wb") as errors:
        driver = psutil.Popen([sys.executable, str(script), str(tmp_path)], stdout=subprocess.DEVNULL, stderr=errors)
    notes = [tmp_path / "0", tmp_path / "1"]
    deadline = time.monotonic() + 60
    while not all(note.exists() and note.read_text() for note in notes):
        assert time.monotonic() < deadline, (tmp_path / "stderr").read_text()
        assert driver.poll() is None, (tmp_path / "stderr").read_text()
        time.sleep(0.05)
    descendants = psutil.Process(driver.pid).children(recursive=True)
    assert {int(note.read_text()) for note in notes} <= {process.pid for process in descendants}
    yield driver, descendants
    for process in alive([*descendants, psutil.Process(driver.pid)] if driver.poll() is None else descendants):
        process.kill()
    driver.wait()


@pytest.mark.parametrize("fault", ["driver is killed", "Ctrl-C", "raylet is killed"])
def test_no_process_outlives(program, fault, tmp_path):
    driver, descendants = program
    raylet = next(process for process in descendants if process.name().startswith("raylet"))
    victim, number, last_word = {
        "driver is killed": (driver, signal.SIGKILL, ""),
        "Ctrl-C": (driver, signal.SIGINT, "KeyboardInterrupt"),
        "raylet is killed": (raylet, signal.SIGKILL, "Ray's node process (raylet) has ended or was killed"),
    }[fault]
    before = time.monotonic()
    victim.send_signal(number)
    driver.wait(timeout=ENDS_WITHIN_S)
    assert still_running(descendants, within_s=ENDS_WITHIN_S - (time.monotonic() - before)) == []
    assert last_word in (tmp_path / "stderr").read_text()
