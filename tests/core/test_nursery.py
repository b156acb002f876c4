"""Forks that behave like fresh processes: their own variables, folder, output, group and exit code."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from seamline.core import nursery

SHOW = """
import json, os, sys
def main():
    settings = json.loads(sys.argv[1])
    os.write(settings["answer"], json.dumps({
        "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "colour": os.environ.get("COLOUR"),
        "random": [__import__("random").random(), float(__import__("numpy").random.rand())],
        "folder": os.getcwd(), "numpy": "numpy" in sys.modules, "number": settings["number"],
    }).encode())
    print("said")
    sys.exit(settings["number"])
"""
WAIT = "import time\ndef main(): time.sleep(300)"


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "nursery_show.py").write_text(SHOW)
    (tmp_path / "nursery_wait.py").write_text(WAIT)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def shown(number, variables):
    read, write = os.pipe()
    child = nursery.start("nursery_show", {"number": number}, {"answer": write}, variables)
    os.close(write)
    with os.fdopen(read) as answer:
        told = json.loads(answer.read())
    code = child.wait(10)
    said = child.stdout.read()
    assert child.stderr.read() == b""
    child.stdout.close()
    child.stderr.close()
    child.close()
    return told, code, said


def test_each_has_its_own_variables_folder_output_and_exit_code(modules, monkeypatch):
    import numpy as np  # the driver has it, so the fork does

    assert np is not None
    first, code, said = shown(3, {"COLOUR": "green"})
    assert (first["number"], first["colour"], code, said) == (3, "green", 3, b"said\n")
    assert first["numpy"]
    assert first["group"] == first["pid"] != os.getpgrp()
    monkeypatch.chdir(modules)
    second, code, _ = shown(0, {"COLOUR": "green"})
    assert (second["folder"], code) == (str(modules), 0)
    assert second["parent"] == first["parent"], "both are of one nursery"
    assert second["pid"] != first["pid"]


def test_one_thread_that_waits_hears_of_the_end_that_another_has_asked_about(modules):
    for _ in range(30):
        child = nursery.start("nursery_wait", {}, {}, {})
        with ThreadPoolExecutor(2) as threads:
            waiting = threads.submit(child.wait, 20)
            asking = threads.submit(poll_until_ended, child)
            os.kill(child.pid, signal.SIGKILL)
            assert (waiting.result(), asking.result()) == (-9, -9)
        child.stdout.close()
        child.stderr.close()
        child.close()


def poll_until_ended(child):
    while child.poll() is None:
        pass
    return child.returncode


def test_forks_draw_different_random_numbers(modules):
    draws = [shown(0, {})[0]["random"] for _ in range(3)]
    assert len({one for one, _ in draws}) == 3
    assert len({other for _, other in draws}) == 3


def test_what_a_nursery_cannot_import_does_not_end_it(modules, monkeypatch):
    monkeypatch.setitem(sys.modules, "seamline.core.not_there", types.ModuleType("seamline.core.not_there"))
    monkeypatch.setenv("COLOUR", "blue")  # so that another nursery is needed
    told, code, _ = shown(3, {})
    assert (told["colour"], code) == ("blue", 3)


def test_what_is_expected_is_imported_once_for_all(modules, monkeypatch):
    monkeypatch.setattr(nursery, "_expected", [])
    (modules / "nursery_slow.py").write_text(f"open({str(modules / 'imports')!r}, 'a').write('once ')")
    (modules / "nursery_show.py").write_text(
        SHOW.replace("import json, os, sys\n", "import json, os, sys, nursery_slow\n")
    )
    first = shown(0, {})[0]["parent"]
    nursery.expect("nursery_slow")
    assert {shown(number, {})[0]["parent"] for number in (1, 2)} == {first}
    assert (modules / "imports").read_text() == "once once ", "the first fork for itself, then the nursery for all"


def test_a_killed_nursery_is_replaced(modules):
    parent = psutil.Process(shown(0, {})[0]["parent"])
    parent.kill()
    parent.wait(10)
    assert shown(0, {})[0]["parent"] != parent.pid


def test_other_variables_are_another_nursery_and_one_of_a_test_is_none(modules, monkeypatch):
    parents = []
    for colour, test in (("green", "a"), ("green", "b"), ("red", "b")):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", test)
        parents.append(shown(0, {"COLOUR": colour})[0]["parent"])
    assert parents[0] == parents[1] != parents[2]


def test_a_killed_fork_says_so_and_keeps_its_number_until_it_is_closed(modules):
    child = nursery.start("nursery_wait", {}, {}, {})
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.05)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    child.stdout.close()
    child.stderr.close()
    child.close()
    deadline = time.monotonic() + 5
    while psutil.pid_exists(child.pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(child.pid)


def test_a_nursery_ends_with_its_driver(modules):
    program = (
        "import os; from seamline.core import nursery;"
        "nursery.start('nursery_show', {'number': 0}, {'answer': 1}, {}).wait(); os.kill(os.getpid(), 9)"
    )
    environment = {**os.environ, "PYTHONPATH": str(modules)}
    told = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, check=False)
    parent = json.loads(told.stdout)["parent"]
    deadline = time.monotonic() + 5
    while psutil.pid_exists(parent) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not psutil.pid_exists(parent)
