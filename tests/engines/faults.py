"""Runs that somebody disturbs: workers that note who they are, and a process that kills one of those."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seamline.core.errors import WorkerError
from tests.engines.inventory import Inventory, host

ENDED_WITHIN_S = 10.0
WORKER, CHILD, PARENT, JVM = range(4)
"""What a worker notes: its process, one that it has started, the one that has started it, and the JVM above, if any."""


def fail(world, shard):
    if world.rank == 1:
        raise ValueError("bad row 7")
    time.sleep(60)


def exit_without_a_word(world, shard):
    if world.rank == 1:
        os._exit(3)
    time.sleep(60)


def kill_the_other(world, shard):
    pids = world.all_gather(os.getpid())
    if world.rank == 0:
        os.kill(pids[1], signal.SIGKILL)
    time.sleep(60)


class Strike:
    """A task that ends in a fault of its second worker, with a note of when that was and of who was there."""

    def __init__(self, fault, folder):
        self.fault, self.folder = fault, folder

    def __call__(self, world, shard):
        (self.folder / f"pid-{world.rank}").write_text(str(os.getpid()))
        world.all_gather("both have noted")
        (self.folder / "struck").write_text(str(time.monotonic()))
        self.fault(world, shard)

    def seconds_since(self):
        return time.monotonic() - float((self.folder / "struck").read_text())

    @property
    def pids(self):
        return [int(note.read_text()) for note in self.folder.glob("pid-*")]


def note_and_wait(folder):
    """A task that writes its process ids and works until somebody ends it."""

    def work(world, shard):
        child = subprocess.Popen(["sleep", "300"])
        parent = host()
        jvm = next((above for above in parent.parents() if "java" in above.name()), parent)
        note = folder / f"worker-{world.rank}-{time.monotonic_ns()}.part"
        note.write_text(f"{os.getpid()} {child.pid} {parent.pid} {jvm.pid}")
        note.rename(note.with_suffix(".note"))
        if world.rank == 1:
            world.all_gather("never complete")
        time.sleep(300)

    return work


def wait_for_notes(folder, within_s=60, or_ended=None):
    """The process ids by rank, once both workers run."""
    deadline = time.monotonic() + within_s
    while len(notes := sorted(folder.glob("*.note"))) < 2:
        assert time.monotonic() < deadline, "the workers did not start"
        assert or_ended is None or or_ended.poll() is None, (folder / "said").read_text()
        time.sleep(0.02)
    return [[int(pid) for pid in note.read_text().split()] for note in notes]


def still_running(pids, within_s):
    deadline = time.monotonic() + within_s
    alive = list(pids)
    while alive and time.monotonic() < deadline:
        alive = [pid for pid in alive if _runs(pid)]
        time.sleep(0.02)
    return alive


def _runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Killer:
    """Kills one of the processes of a run as soon as all workers are at work, from another process."""

    PROGRAM = """
import os, signal, sys, time
from pathlib import Path
folder, rank, which = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
while len(notes := sorted(folder.glob("*.note"))) < 2:
    time.sleep(0.02)
(folder / "killed").write_text(str(time.monotonic()))
os.kill(int(notes[rank].read_text().split()[which]), signal.SIGKILL)
"""

    def __init__(self, folder, rank, which):
        self.folder = folder
        self.process = subprocess.Popen([sys.executable, "-c", self.PROGRAM, str(folder), str(rank), str(which)])

    def seconds_since(self):
        assert self.process.wait(10) == 0
        return time.monotonic() - float((self.folder / "killed").read_text())


def assert_a_killed_python_is_named(engine, folder):
    """The Python process of a Spark task is killed: the error says whose, in time, and nothing of the run is left."""
    killer = Killer(folder, rank=1, which=PARENT)
    with pytest.raises(WorkerError, match="the Spark task of worker 1 has ended without a word") as caught:
        engine.run(note_and_wait(folder), [0, 0])
    assert killer.seconds_since() < ENDED_WITHIN_S
    assert caught.value.rank == 1
    first, second = wait_for_notes(folder)
    assert still_running([*first[:2], *second[:3]], within_s=2) == []
    assert len(list(folder.glob("*.note"))) == 2, "Spark ran a worker again"


@contextlib.contextmanager
def program(text, folder, *arguments):
    """A driver whose two workers are at work, and the inventory of all that it holds then.

    It leads a process group, as a program does that a shell has started. What it says is in the file ``said``.
    """
    inventory = Inventory()
    environment = {**os.environ, **inventory.variables, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", text, str(folder), *arguments]
    with (folder / "said").open("w") as said:
        driver = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
    try:
        wait_for_notes(folder, within_s=100, or_ended=driver)
        inventory.take()
        yield driver, inventory
    finally:
        driver.kill()
        driver.wait()
        inventory.clean()
