"""Contenders are forks of a process that has done the imports; none of them harms the others or the driver."""

import functools
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from seamline.core.errors import RunTimeoutError, WorkerError
from seamline.nano.inference.bench import Bench
from tests.nano.processes import gone


class Calculator:
    """Stands on a bench in place of a model."""

    def __init__(self, known=()):
        self.known = known

    def __call__(self, wanted):
        name, arguments = wanted
        return getattr(self, name)(*arguments)

    def add(self, one, other):
        return one + other

    def where(self):
        return os.getpid(), os.getppid()

    def fail(self):
        raise MemoryError("no memory left")

    def crash(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def hang(self):
        time.sleep(600)

    def start_a_child(self):
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid


def bench_of(setup):
    return Bench(setup, threads=1, timeout_s=20)


def broken():
    raise ValueError("it cannot be built")


def test_each_contender_is_a_process_of_its_own():
    with bench_of(Calculator) as one, bench_of(Calculator) as other:
        assert (one.ask("add", 2, 3), other.ask("add", "a", "b")) == (5, "ab")
        first, second = one.ask("where"), other.ask("where")
        assert first[0] != second[0]
        assert first[1] == second[1], "they have one parent"
    assert gone([first[0], second[0]], within_s=2)


def test_an_error_is_told_with_its_cause_and_the_contender_goes_on():
    with bench_of(Calculator) as bench:
        with pytest.raises(WorkerError, match="no memory left") as caught:
            bench.ask("fail")
        assert isinstance(caught.value.__cause__, MemoryError)
        assert bench.ask("add", 1, 1) == 2
    with pytest.raises(WorkerError, match="it cannot be built"), bench_of(broken):
        pass


def test_one_that_dies_or_hangs_leaves_the_others_alone():
    with bench_of(Calculator) as good:
        with bench_of(Calculator) as dying, pytest.raises(WorkerError, match="killed by SIGKILL"):
            dying.ask("crash")
        with bench_of(Calculator) as hanging:
            hanging._timeout_s = 0.3
            with pytest.raises(RunTimeoutError, match=r"more than 0.3 s"):
                hanging.ask("hang")
        assert good.ask("add", 1, 2) == 3


def test_what_a_contender_has_started_ends_with_it():
    with bench_of(Calculator) as bench:
        pid = bench.ask("start_a_child")
        assert psutil.pid_exists(pid)
    assert gone([pid], within_s=2)


PROGRAM = """
import os, sys
from seamline.nano.inference.bench import Bench
from tests.nano.test_bench import Calculator
bench = Bench(Calculator, threads=1, timeout_s=20).__enter__()
print(*bench.ask("where"), bench.ask("start_a_child"), flush=True)
sys.stdin.read()
"""


def test_no_process_outlives_a_driver_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        driver.kill()
    assert len(pids) == 3
    assert gone(pids, within_s=5)


def test_what_cannot_travel_is_named():
    with pytest.raises(TypeError, match="lock"):
        bench_of(functools.partial(Calculator, known=__import__("threading").Lock()))
