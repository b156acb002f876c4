"""Several copies of a model answer a stream of batches as the model itself would, and leave nothing behind."""

import gc
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
from torch import nn

from seamline.core.errors import SeamlineError, UnpicklableError, WorkerError
from seamline.core.machine import PINNING_VARIABLES, THREAD_VARIABLES
from seamline.core.packet import Packet
from seamline.engines.local.service import Service
from seamline.nano.inference.multi_instance import MultiInstance, to_multi_instance
from tests.nano.processes import gone, processes_of_workers, running

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def doubling():
    # A function of this module would travel as its name, and each copy would import all that it imports.
    with MultiInstance(lambda batch: batch * 2, 2) as multi:
        yield multi


def test_a_service_answers_in_order_and_keeps_what_it_was_set_up_with(no_process_left):
    def setup():
        seen = []

        def count(value):
            seen.append(value)
            return len(seen), value

        return count

    service = Service(setup, name="counter", ahead=2)
    for value in "abcde":
        service.submit(value)
    assert [service.receive() for _ in range(5)] == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    with pytest.raises(ValueError, match="nothing was submitted"):
        service.receive()
    service.close()


def test_a_service_that_raised_answers_the_next_request():
    def setup():
        return lambda value: 10 / value

    service = Service(setup, name="divider")
    for value in (5, 0, 2):
        service.submit(value)
    assert service.receive() == 2
    with pytest.raises(WorkerError, match=r"(?s)divider failed.*division by zero") as caught:
        service.receive()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert service.receive() == 5
    service.close()


@pytest.mark.parametrize(
    ("how", "words"), [("os.kill(os.getpid(), 9)", "SIGKILL"), ("os._exit(7)", "exit code 7")], ids=["killed", "exited"]
)
def test_a_service_that_dies_says_so_at_once(how, words, no_process_left):
    def setup():
        return lambda command: exec(command, {"os": os})

    service = Service(setup, name="mortal")
    service.wait_until_ready()
    service.submit(how)
    service.submit("pass")
    began = time.monotonic()
    for _ in range(2):
        with pytest.raises(WorkerError, match=f"(?s)mortal failed.*{words}"):
            service.receive()
    service.submit("pass")
    with pytest.raises(WorkerError, match=words):
        service.receive()
    assert time.monotonic() - began < 2
    assert service.ended
    service.close()


def test_a_death_is_noticed_although_a_fork_of_the_worker_lives_on(no_process_left):
    def setup():
        def fork_and_die(value):
            if os.fork() == 0:
                time.sleep(300)
            os._exit(1)

        return fork_and_die

    service = Service(setup, name="parent")
    service.wait_until_ready()
    service.submit(None)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="exit code 1"):
        service.receive()
    assert time.monotonic() - began < 2
    service.close()


def test_what_a_service_prints_comes_out_with_its_name(capfd):
    def setup():
        return print

    service = Service(setup, name="speaker")
    service.submit("hello")
    service.receive()
    service.close()
    assert "[speaker] hello\n" in capfd.readouterr().out


def test_opening_and_closing_services_leaks_no_descriptors_and_no_threads():
    def setup():
        return abs

    Service(setup, name="first").close()
    fds, threads = psutil.Process().num_fds(), threading.active_count()
    for _ in range(3):
        service = Service(setup, name="other")
        service.submit(-1)
        assert service.receive() == 1
        service.close()
        service.close()
    assert psutil.Process().num_fds() == fds
    assert threading.active_count() == threads


def test_what_a_service_has_started_ends_with_it():
    def setup():
        return lambda command: subprocess.Popen(command).pid

    service = Service(setup, name="starter")
    service.submit(["sleep", "300"])
    pid = service.receive()
    assert running(pid)
    service.close()
    assert gone([pid], within_s=1)


def test_a_service_that_is_busy_for_long_closes_within_seconds(no_process_left):
    def setup():
        return time.sleep

    service = Service(setup, name="sleeper")
    service.wait_until_ready()
    service.submit(300)
    service.submit(np.zeros(10_000_000))  # more than fits between two processes, so the writer is stuck
    began = time.monotonic()
    service.close()
    assert time.monotonic() - began < 4
    with pytest.raises(WorkerError, match="closed"):
        service.receive()


def test_a_packet_does_not_see_later_changes_and_comes_out_writable():
    array = np.ones(100_000)
    packet = Packet.of(array, "an array")
    array[:] = 2
    with MultiInstance(lambda batch: np.add(batch, 1, out=batch), 1) as multi:
        (out,) = multi([packet.open()])
    assert out.sum() == 200_000
    out += 1


def test_outputs_come_in_the_order_of_the_batches_however_long_each_takes():
    def slow_when_even(value):
        time.sleep(0.1 if value % 2 == 0 else 0.0)
        return value * 10

    with to_multi_instance(slow_when_even, num_processes=2) as multi:
        assert multi(range(9)) == [value * 10 for value in range(9)]


def test_the_last_batch_may_be_smaller(doubling):
    batches = list(torch.arange(10.0).split(4))
    outputs = doubling(batches)
    assert [len(output) for output in outputs] == [4, 4, 2]
    assert torch.equal(torch.cat(outputs), torch.arange(10.0) * 2)


def test_a_data_loader_is_a_stream_of_batches(doubling):
    loader = torch.utils.data.DataLoader(torch.arange(7), batch_size=3)
    assert torch.equal(torch.cat(doubling(loader)), torch.arange(7) * 2)


def test_no_batches_make_no_outputs(doubling):
    assert doubling([]) == []


def test_large_batches_pass_in_both_directions(doubling):
    batches = [np.full((1000, 1000), float(index)) for index in range(5)]
    for index, output in enumerate(doubling(batches)):
        assert output.shape == (1000, 1000)
        assert (output == 2 * index).all()


def test_tuples_are_positional_arguments_and_dicts_are_keywords():
    def show(*args, **kwargs):
        return args, kwargs

    with MultiInstance(show, 1) as multi:
        assert multi([(1, 2), {"a": 3}, [4, 5]]) == [((1, 2), {}), ((), {"a": 3}), (([4, 5],), {})]


def test_a_torch_model_answers_as_here_without_gradients_and_without_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5))
    batches = [torch.randn(4, 5), torch.randn(2, 5)]
    with MultiInstance(model, 2) as multi:
        outputs = multi(batches)
    assert model.training
    model.eval()
    for batch, output in zip(batches, outputs, strict=True):
        torch.testing.assert_close(output, model(batch).detach())
        assert not output.requires_grad
        assert not output.is_inference()


def test_batches_are_taken_as_they_are_needed(doubling):
    taken = []

    def endless():
        for value in range(1_000_000):
            taken.append(value)
            yield value

    stream = doubling.stream(endless())
    assert taken == []
    assert [next(stream) for _ in range(3)] == [0, 2, 4]
    assert len(taken) <= 3 + 2 * doubling.num_processes
    stream.close()
    assert doubling([1, 2]) == [2, 4]


def test_two_streams_at_once_do_not_mix(doubling):
    pairs = zip(doubling.stream(range(20)), doubling.stream(range(100, 120)), strict=True)
    assert list(pairs) == [(2 * value, 2 * value + 200) for value in range(20)]


def test_an_error_of_the_model_names_the_copy_and_the_batch_and_the_rest_goes_on():
    def reciprocal(value):
        return 1 / value

    with MultiInstance(reciprocal, 2) as multi:
        with pytest.raises(
            WorkerError, match=r"(?s)copy \d failed on item 2.*in reciprocal.*ZeroDivisionError"
        ) as caught:
            multi([1, 2, 0, 4])
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert multi([4, 2]) == [0.25, 0.5]


def test_a_killed_copy_is_an_error_and_the_next_call_works_again(no_process_left):
    def die_once(value):
        if value == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    with MultiInstance(die_once, 2) as multi:
        began = time.monotonic()
        with pytest.raises(WorkerError, match=r"(?s)copy \d failed on item 1.*SIGKILL"):
            multi(["a", "die", "b"])
        assert time.monotonic() - began < 2
        assert multi(["a", "b", "c"]) == ["a", "b", "c"]


def test_a_copy_that_cannot_be_set_up_is_an_error_at_once(no_process_left):
    class Stubborn:
        def __call__(self, batch):
            return batch

        def __setstate__(self, state):
            raise RuntimeError("not in this process")

        def __getstate__(self):
            return {"some": "state"}

    with pytest.raises(WorkerError, match="not in this process"):
        MultiInstance(Stubborn(), 2)


def test_what_cannot_travel_is_named():
    lock = threading.Lock()
    with pytest.raises(UnpicklableError, match="the model cannot be sent"):
        MultiInstance(lambda batch: (lock, batch), 1)


def test_closing_or_dropping_leaves_no_process(no_process_left):
    before = processes_of_workers()
    multi = MultiInstance(abs, 2)
    assert len(processes_of_workers() - before) >= 2
    multi.close()
    assert processes_of_workers() <= before
    multi.close()
    with pytest.raises(SeamlineError, match="closed"):
        multi([1])
    dropped = MultiInstance(abs, 1)
    del dropped
    gc.collect()
    assert processes_of_workers() <= before


@pytest.fixture
def no_thread_variables(monkeypatch):
    for name in (*THREAD_VARIABLES, *PINNING_VARIABLES):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_thread_variables")
def test_copies_are_pinned_to_cores_of_their_own():
    def cores_and_threads(_):
        time.sleep(0.2)  # so that both copies get to answer
        return tuple(sorted(os.sched_getaffinity(0))), os.environ.get("OMP_NUM_THREADS")

    first_two = sorted(os.sched_getaffinity(0))[:2]
    with MultiInstance(cores_and_threads, len(first_two), cores_per_process=1) as multi:
        found = set(multi(range(4)))
    assert found == {((core,), "1") for core in first_two}


@pytest.mark.parametrize("asked", [{"num_processes": 0}, {"num_processes": 1, "cores_per_process": 0}])
def test_fewer_than_one_is_refused(asked):
    with pytest.raises(ValueError, match="=0 must be at least 1"):
        to_multi_instance(abs, **asked)


def test_more_copies_than_cores_work_with_a_warning():
    cores = len(os.sched_getaffinity(0))
    with pytest.warns(UserWarning, match=f"num_processes={cores + 1} is more than the "):
        multi = to_multi_instance(abs, num_processes=cores + 1)
    with multi:
        assert multi([-1, -2, -3]) == [1, 2, 3]


PROGRAM = """
import os, subprocess, sys, time
from pathlib import Path
from seamline.nano.inference.multi_instance import MultiInstance
folder = Path(sys.argv[1])
def work(index):
    child = subprocess.Popen(["sleep", "300"])
    (folder / f"note-{index}").write_text(f"{os.getpid()} {child.pid}")
    time.sleep(300)
MultiInstance(work, 2)([0, 1])
"""


def test_no_process_outlives_a_driver_that_was_killed(tmp_path, no_process_left):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    driver = subprocess.Popen([sys.executable, str(script), str(tmp_path)])
    notes = [tmp_path / "note-0", tmp_path / "note-1"]
    deadline = time.monotonic() + 30
    while not all(note.exists() and len(note.read_text().split()) == 2 for note in notes):
        assert time.monotonic() < deadline, "the copies did not start"
        time.sleep(0.02)
    driver.kill()
    driver.wait(timeout=10)
    assert gone([int(pid) for note in notes for pid in note.read_text().split()], within_s=2)


def test_a_script_without_a_main_guard_ends_by_itself(tmp_path, no_process_left):
    script = tmp_path / "program.py"
    script.write_text(
        "from seamline.nano.inference.multi_instance import MultiInstance\n"
        "offset = 3\n"
        "multi = MultiInstance(lambda x: x + offset, 2)\n"
        "print(multi(range(4)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "[3, 4, 5, 6]\n"
    assert done.stderr == ""
