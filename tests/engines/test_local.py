"""The local engine: the engine contract, and what processes of one machine owe beyond it."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from seamline.core.errors import RunTimeoutError, WorkerError
from seamline.engines.local import LocalEngine
from seamline.testing import EngineContract
from tests.engines.faults import ENDED_WITHIN_S, program, still_running


class TestLocalEngine(EngineContract):
    setup = "from seamline.engines.local import LocalEngine; engine = LocalEngine()"

    @pytest.fixture
    def engine(self):
        engine = LocalEngine()
        yield engine
        engine.close()


def test_what_workers_print_comes_out_with_their_rank(capfd):
    def speak(world, shard):
        print(f"I have {shard}")
        print("half a line", end="")
        os.write(2, b"from native code\n")

    LocalEngine().run(speak, ["a", "b"])
    out, err = capfd.readouterr()
    for rank, shard in enumerate("ab"):
        assert f"[worker {rank}] I have {shard}\n" in out
        assert f"[worker {rank}] half a line\n" in out
        assert f"[worker {rank}] from native code\n" in err


def test_the_last_words_of_a_dying_worker_are_heard(capfd):
    def speak_and_die(world, shard):
        print("my last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError):
        LocalEngine().run(speak_and_die, [0, 0])
    assert "my last words" in capfd.readouterr().out


def thread_settings(world, shard):
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("MKL_NUM_THREADS"), sorted(os.sched_getaffinity(0))


@pytest.fixture
def no_thread_variables(monkeypatch):
    from seamline.core.machine import PINNING_VARIABLES, THREAD_VARIABLES

    for name in (*THREAD_VARIABLES, *PINNING_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_thread_variables")
def test_workers_share_the_cores_and_are_pinned_to_their_own():
    allowed = sorted(os.sched_getaffinity(0))
    first, second = LocalEngine().run(thread_settings, [0, 0])
    assert first[0] == second[0] == str(max(1, len(allowed) // 2))
    if len(allowed) > 1:
        assert sorted(first[2] + second[2]) == allowed
        assert not set(first[2]) & set(second[2])


@pytest.mark.usefixtures("no_thread_variables")
def test_settings_of_the_user_are_left_alone(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    omp, mkl, cores = LocalEngine().run(thread_settings, [0, 0])[0]
    assert omp == "5"
    assert mkl == str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert cores == sorted(os.sched_getaffinity(0))


PROGRAM = """
import sys
from pathlib import Path
from seamline.engines.local import LocalEngine
from tests.engines.faults import note_and_wait
LocalEngine().run(note_and_wait(Path(sys.argv[1])), [0, 0])
"""


def test_nothing_is_left_of_a_driver_that_was_killed(tmp_path):
    with program(PROGRAM, tmp_path) as (driver, inventory):
        driver.kill()
        driver.wait()
        assert inventory.left(within_s=2) == []


@pytest.mark.parametrize("presses", [1, 2])
def test_nothing_is_left_after_ctrl_c(presses, tmp_path):
    with program(PROGRAM, tmp_path) as (driver, inventory):
        for _ in range(presses):
            os.killpg(driver.pid, signal.SIGINT)
            time.sleep(0.05)
        driver.wait(ENDED_WITHIN_S)
        assert inventory.left(within_s=2) == []
        assert "KeyboardInterrupt" in (tmp_path / "said").read_text()


def test_the_children_of_a_failed_worker_go_with_it(tmp_path):
    def fail_with_child(world, shard):
        child = subprocess.Popen(["sleep", "300"])
        (tmp_path / f"{world.rank}").write_text(str(child.pid))
        world.all_gather(0)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError):
        LocalEngine().run(fail_with_child, [0, 0])
    assert still_running([int((tmp_path / rank).read_text()) for rank in "01"], within_s=2) == []


def test_nothing_stays_open_after_many_runs():
    engine = LocalEngine()
    engine.run(lambda world, shard: 0, [0, 0])
    before = psutil.Process().num_fds()
    for _ in range(3):
        engine.run(lambda world, shard: 0, [0, 0])
    with pytest.raises(WorkerError):
        engine.run(lambda world, shard: 1 / 0, [0, 0])
    assert psutil.Process().num_fds() == before


def test_an_engine_runs_inside_a_worker():
    def nest(world, shard):
        return sum(LocalEngine().run(lambda inner, each: each + inner.rank, [shard, shard]))

    assert LocalEngine().run(nest, [10, 20]) == [21, 41]


def test_a_run_that_takes_too_long_is_stopped_and_says_who_is_late():
    def wait(world, shard):
        time.sleep(shard)

    before = time.monotonic()
    with pytest.raises(RunTimeoutError, match=r"not done after 2 s; still at work: worker 1"):
        LocalEngine(timeout_s=2).run(wait, [0, 60])
    assert time.monotonic() - before < 7


def test_what_workers_print_can_be_taken_elsewhere(capfd):
    lines = []
    LocalEngine(tell=lambda *line: lines.append(line)).run(lambda world, shard: print("hello"), [0, 0])
    assert sorted(lines) == [(0, "stdout", "hello"), (1, "stdout", "hello")]
    assert capfd.readouterr().out == ""


def test_tasks_share_processes_that_go_with_the_engine():
    engine = LocalEngine()
    first = engine.map(lambda item: os.getpid(), range(8))
    second = engine.map(lambda item: os.getpid(), range(8))
    assert len(set(first)) <= len(os.sched_getaffinity(0))
    assert set(second) <= set(first)
    assert os.getpid() not in first
    engine.close()
    assert still_running(list(set(first)), within_s=2) == []


def test_tasks_that_still_run_are_stopped_by_the_first_failure():
    def fail_or_wait(item):
        if item == 1:
            raise ValueError("stop")
        time.sleep(60)

    engine = LocalEngine()
    before = time.monotonic()
    with pytest.raises(WorkerError, match="stop"):
        engine.map(fail_or_wait, range(2))
    assert time.monotonic() - before < 5
    engine.close()


def test_nothing_stays_open_after_many_tasks():
    engine = LocalEngine()
    engine.map(abs, range(4))
    before = psutil.Process().num_fds()
    for _ in range(3):
        engine.broadcast(list(range(1000))).release()
        engine.map(abs, range(20))
        engine.exchange(lambda item: [b"a", b"b"], [0, 1], lambda number, blocks: number)
    assert psutil.Process().num_fds() == before
    engine.close()


def test_a_released_broadcast_cannot_be_read_and_says_so():
    engine = LocalEngine()
    handle = engine.broadcast("secret")
    handle.release()
    with pytest.raises(WorkerError, match="was released"):
        engine.map(lambda item: handle.value, [0])
    engine.close()


POOL = """
import os, sys, time
from pathlib import Path
from seamline.engines.local import LocalEngine
def work(item):
    Path(sys.argv[1], str(item)).write_text(str(os.getpid()))
    time.sleep(300)
LocalEngine().map(work, range(2))
"""


def test_no_process_of_the_pool_outlives_a_driver_that_was_killed(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(POOL.replace("sys.argv[1]", repr(str(tmp_path))))
    driver = subprocess.Popen([sys.executable, str(script)])
    note = tmp_path / "0"
    deadline = time.monotonic() + 30
    while not note.exists() or not note.read_text():
        assert time.monotonic() < deadline, "the task did not start"
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    assert still_running([int(note.read_text())], within_s=2) == []
