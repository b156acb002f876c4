"""Processes that end together, whoever among them or above them is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from seamline.engines.family import Family, lives
from seamline.engines.guard import Guard
from tests.engines.faults import still_running

ORPHAN = "setsid sleep 300 & echo $! > {}; {}"
"""A process in a session of its own, whose parent ends or stays."""


def started(folder, then):
    """A family of which one has left its group, and its processes without the guard."""
    family = Family(folder, {"COLOUR": "green"})
    family.start(["sh", "-c", ORPHAN.format(folder / "pid", then)], folder / "log")
    while not (folder / "pid").exists() or not (folder / "pid").read_text().strip():
        time.sleep(0.01)
    return family, int((folder / "pid").read_text())


@pytest.mark.parametrize("then", ["sleep 300", "exit 0"])
def test_all_end_with_the_folder_when_they_are_told_to(then, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    family, orphan = started(folder, then)
    assert psutil.Process(orphan).environ()["COLOUR"] == "green"
    pids = [process.pid for process in family.processes]
    assert orphan in pids
    family.end()
    family.end()
    assert still_running(pids, within_s=0.1) == []
    assert not folder.exists()


def test_a_member_that_ends_is_seen_and_what_it_said_is_kept(tmp_path):
    with Family(tmp_path / "folder", {}) as family:
        process = family.start(["sh", "-c", "echo my last words"], tmp_path / "log")
        deadline = time.monotonic() + 5
        while lives(process) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not lives(process)
    assert (tmp_path / "log").read_text() == "my last words\n"


PROGRAM = """
import sys, time
from pathlib import Path
from tests.engines.test_family import started
family, orphan = started(Path(sys.argv[1]), "sleep 300")
print(*[process.pid for process in family.processes], flush=True)
time.sleep(300)
"""


def test_all_end_with_the_one_who_holds_them_however_that_one_ends(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as holder:
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert len(pids) >= 3
        holder.kill()
        assert still_running(pids, within_s=5) == []
        assert not folder.exists()


def test_those_that_a_killed_guard_has_started_end_with_it(tmp_path):
    with Family(tmp_path, {}) as family:
        process = family.start(["sleep", "300"], tmp_path / "log")
        family.processes[0].kill()
        assert still_running([process.pid], within_s=2) == []


def test_a_guard_ends_what_it_knows_and_what_carries_its_mark_though_its_parent_is_gone(tmp_path):
    mark = {"GUARDED": str(tmp_path)}
    known = subprocess.Popen(["sleep", "300"])
    leave_a_child = "import subprocess; print(subprocess.Popen(['sleep', '300'], stdout=subprocess.DEVNULL).pid)"
    said = subprocess.check_output([sys.executable, "-c", leave_a_child], env={**os.environ, **mark})
    orphan = psutil.Process(int(said))
    other = subprocess.Popen(["sleep", "300"])
    folder = tmp_path / "folder"
    folder.mkdir()
    try:
        Guard([psutil.Process(known.pid)], mark, folder).close()
        assert not lives(orphan)
        assert known.wait(1) == -signal.SIGKILL
        assert other.poll() is None
        assert not folder.exists()
    finally:
        other.kill()
        other.wait()
