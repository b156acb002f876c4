"""A pipeline gives what its functions give one after the other, sooner, and never hangs."""

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest
import torch

from seamline.core.errors import SeamlineError, WorkerError
from seamline.nano.inference.pipeline import Pipeline
from tests.nano.processes import processes_of_workers, running

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def arithmetic():
    # Functions of this module would travel as its name, and each stage would import all that it imports.
    with Pipeline([lambda value: value + 1, ("doubling", lambda value: value * 2)]) as pipeline:
        yield pipeline


def test_results_come_in_the_order_of_the_items(arithmetic):
    assert arithmetic.run(range(20)) == [2 * (value + 1) for value in range(20)]
    assert arithmetic.run([]) == []


def test_large_arrays_pass_through_all_stages(arithmetic):
    for index, result in enumerate(arithmetic.run([np.full((1000, 1000), float(i)) for i in range(6)])):
        assert (result == 2 * (index + 1)).all()


def test_tensors_lose_their_gradients_on_the_way(arithmetic):
    item = torch.arange(3.0, requires_grad=True)
    (result,) = arithmetic.run([item])
    assert result.tolist() == [2, 4, 6]
    assert not result.requires_grad


def test_a_tuple_is_one_item():
    with Pipeline([lambda value: (value, value + 1), sum]) as pipeline:
        assert pipeline.run([1, 2]) == [3, 5]


def test_items_are_taken_as_they_are_needed(arithmetic):
    taken = []

    def endless():
        for value in range(1_000_000):
            taken.append(value)
            yield value

    stream = arithmetic.stream(endless())
    assert taken == []
    assert [next(stream) for _ in range(3)] == [2, 4, 6]
    assert len(taken) <= 3 + 2 * 2
    stream.close()
    assert arithmetic.run([0]) == [2]


def test_two_streams_at_once_do_not_mix(arithmetic):
    pairs = zip(arithmetic.stream(range(20)), arithmetic.stream(range(100, 120)), strict=True)
    assert list(pairs) == [(2 * value + 2, 2 * value + 202) for value in range(20)]


def test_stages_work_at_the_same_time():
    def wait_a_little(value):
        time.sleep(0.15)
        return value

    with Pipeline([wait_a_little] * 3) as pipeline:
        began = time.monotonic()
        assert pipeline.run(range(6)) == list(range(6))
        took_s = time.monotonic() - began
    one_by_one_s = 3 * 6 * 0.15
    assert took_s < 0.7 * one_by_one_s  # (6 + 2) * 0.15 if all goes well, less than half of it


def test_each_stage_has_a_process_of_its_own():
    with Pipeline([lambda seen: [*seen, os.getpid()]] * 3) as pipeline:
        (pids,) = pipeline.run([[]])
    assert len({os.getpid(), *pids}) == 4


def test_an_error_names_the_stage_and_the_item_and_the_pipeline_runs_again(no_process_left):
    def reciprocal(value):
        return 1 / value

    with Pipeline([lambda value: value + 1, ("inverse", reciprocal), lambda value: value * 2]) as pipeline:
        for _ in range(2):
            results = []
            with pytest.raises(WorkerError, match=r"(?s)stage 1 'inverse' failed on item 3.*in reciprocal") as caught:
                results.extend(pipeline.stream([0, 1, 3, -1, 0, 0, 0, 0, 0]))
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert pipeline.run([0, 1]) == [2, 1]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_stage_that_is_killed_is_an_error_and_the_pipeline_runs_again(position, no_process_left):
    def die(value):
        if value == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    def keep(value):
        return value

    stages = [keep, keep, keep]
    stages[position] = die
    with Pipeline(stages) as pipeline:
        began = time.monotonic()
        with pytest.raises(WorkerError, match=rf"(?s)stage {position} 'die' failed on item 2.*SIGKILL"):
            pipeline.run(["a", "b", "die", "c", "d", "e", "f", "g", "h", "i"])
        assert time.monotonic() - began < 3
        assert pipeline.run("abc") == list("abc")


def test_a_stage_that_was_killed_while_idle_is_replaced(no_process_left):
    with Pipeline([lambda _: os.getpid()]) as pipeline:
        (pid,) = pipeline.run([0])
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while running(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        with_a_new_one = pipeline.run([0])
    assert with_a_new_one != [pid]


def test_an_error_of_the_items_comes_through_and_the_pipeline_runs_on(arithmetic):
    def broken():
        yield 1
        raise KeyError("no more")

    with pytest.raises(KeyError, match="no more"):
        arithmetic.run(broken())
    assert arithmetic.run([1]) == [4]


def test_closing_leaves_no_process_and_no_descriptors(no_process_left):
    Pipeline([abs]).close()
    before = psutil.Process().num_fds()
    pipeline = Pipeline([abs, abs])
    assert pipeline.run([-1]) == [1]
    before_closing = processes_of_workers()
    pipeline.close()
    assert len(before_closing - processes_of_workers()) >= 2
    pipeline.close()
    assert psutil.Process().num_fds() == before
    with pytest.raises(SeamlineError, match="closed"):
        pipeline.run([1])


def test_closing_while_a_stage_is_busy_takes_seconds_and_whoever_waits_is_told(tmp_path, no_process_left):
    def sleep_long(note):
        note.touch()
        time.sleep(300)

    pipeline = Pipeline([lambda note: note, sleep_long])
    heard = []

    def consume():
        try:
            pipeline.run([tmp_path / f"note-{index}" for index in range(8)])
        except WorkerError as error:
            heard.append(error)

    consumer = threading.Thread(target=consume)
    consumer.start()
    deadline = time.monotonic() + 20
    while not (tmp_path / "note-0").exists():
        assert time.monotonic() < deadline, "the stage did not get to work"
        time.sleep(0.02)
    began = time.monotonic()
    pipeline.close()
    assert time.monotonic() - began < 4
    consumer.join(timeout=10)
    assert "closed" in str(heard[0])


def test_stages_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least one stage"):
        Pipeline([])
    with pytest.raises(TypeError, match="stage 1 'model' must be a function, but it is 5"):
        Pipeline([abs, ("model", 5)])


PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
from seamline.nano.inference.pipeline import Pipeline
folder = Path(sys.argv[1])
def note(index):
    child = subprocess.Popen(["sleep", "300"])
    (folder / f"note-{index}").write_text(f"{os.getpid()} {child.pid}")
    return index + 1
def note_and_sleep(index):
    note(index)
    time.sleep(300)
Pipeline([note, note_and_sleep]).run([0])
"""


def test_no_process_outlives_a_driver_that_was_killed(tmp_path, no_process_left):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    notes = [tmp_path / "note-0", tmp_path / "note-1"]
    deadline = time.monotonic() + 30
    while not all(note.exists() and len(note.read_text().split()) == 2 for note in notes):
        assert time.monotonic() < deadline, "the stages did not start"
        time.sleep(0.02)
    driver.kill()
    driver.wait(timeout=10)
    pids = [int(pid) for note in notes for pid in note.read_text().split()]
    deadline = time.monotonic() + 2
    while any(map(running, pids)):
        assert time.monotonic() < deadline, "a process outlived its driver"
        time.sleep(0.02)
