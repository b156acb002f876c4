"""``seamline run`` and ``seamline env``: a program behaves as under Python, with this machine's settings."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seamline.core.machine import OUR_VARIABLES, PINNING_VARIABLES, THREAD_VARIABLES

PROGRAM = """
import json, os, pickle, sys
from beside import ANSWER

class Point:
    x = ANSWER

if __name__ == "__main__":
    there = pickle.loads(pickle.dumps(Point()))
    print(json.dumps({
        "argv": sys.argv, "path0": sys.path[0], "main": __name__, "file": __file__, "pid": os.getpid(),
        "pickled": type(there).__module__, "answer": there.x, "environment": dict(os.environ),
        "maps": open("/proc/self/maps").read(), "main_is": sys.modules["__main__"].__file__,
    }))
    if "--fail" in sys.argv:
        sys.exit(3)
    if "--raise" in sys.argv:
        raise ValueError("of the program")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("ANSWER = 42\n")
    return tmp_path


def environment(**variables):
    mine = {*THREAD_VARIABLES, *PINNING_VARIABLES, OUR_VARIABLES, "LD_PRELOAD", "GLIBC_TUNABLES"}
    others = {name: value for name, value in os.environ.items() if name not in mine and not name.startswith("MALLOC_")}
    return {**others, **variables}


def run(*command, cwd, **variables):
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env=environment(**variables)
    )


def seamline(*arguments, cwd, **variables):
    return run(sys.executable, "-m", "seamline.cli", *arguments, cwd=cwd, **variables)


def test_a_script_sees_what_it_would_see_under_python(folder):
    arguments = ["program.py", "--malloc", "mine", "-m", "--epochs=3", "a b"]
    ours = json.loads(seamline("run", *arguments, cwd=folder).stdout)
    pythons = json.loads(run(sys.executable, *arguments, cwd=folder).stdout)
    for what in ("argv", "path0", "main", "file", "pickled", "answer", "main_is"):
        assert ours[what] == pythons[what]
    assert ours["answer"] == 42


def test_a_module_runs_as_with_python_m(folder):
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").touch()
    (folder / "package" / "value.py").write_text("VALUE = 7\n")
    (folder / "package" / "job.py").write_text(
        "import sys; from .value import VALUE; print(VALUE, __name__, __package__, sys.argv[1:])\n"
    )
    done = seamline("run", "-m", "package.job", "-x", cwd=folder)
    assert done.stdout == "7 __main__ package ['-x']\n"


def test_the_variables_are_set_and_the_users_survive(folder):
    found = json.loads(seamline("run", "program.py", cwd=folder, MKL_NUM_THREADS="9").stdout)["environment"]
    assert found["MKL_NUM_THREADS"] == "9"
    assert 1 <= int(found["OMP_NUM_THREADS"]) <= len(os.sched_getaffinity(0))
    assert found["MALLOC_MMAP_MAX_"] == "0"
    found = json.loads(seamline("run", "program.py", cwd=folder, MALLOC_ARENA_MAX="2").stdout)["environment"]
    assert found["MALLOC_ARENA_MAX"] == "2"
    assert "MALLOC_MMAP_MAX_" not in found
    found = json.loads(seamline("run", "--malloc", "system", "program.py", cwd=folder).stdout)["environment"]
    assert "MALLOC_MMAP_MAX_" not in found


def test_the_exit_code_is_the_programs(folder):
    assert seamline("run", "program.py", "--fail", cwd=folder).returncode == 3


def test_a_traceback_is_the_programs_alone(folder):
    done = seamline("run", "program.py", "--raise", cwd=folder)
    assert done.returncode == 1
    assert done.stderr == run(sys.executable, "program.py", "--raise", cwd=folder).stderr
    assert "seamline" not in done.stderr


def test_the_process_stays_the_same_and_ctrl_c_reaches_the_program(folder):
    (folder / "waits.py").write_text(
        "import os, time\n"
        "try:\n    print(os.getpid(), flush=True)\n    while True: time.sleep(0.05)\n"
        "except KeyboardInterrupt:\n    print('interrupted'); raise SystemExit(5)\n"
    )
    command = [sys.executable, "-m", "seamline.cli", "run", "waits.py"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment()) as process:
        assert int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=30)
    assert output == "interrupted\n"
    assert process.returncode == 5


def test_a_killed_program_is_seen_to_be_killed(folder):
    (folder / "dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)\n")
    assert seamline("run", "dies.py", cwd=folder).returncode == -signal.SIGTERM


def test_a_library_is_preloaded_by_starting_anew(folder):
    """Any library will do to see that one is loaded: this one is libm under jemalloc's name."""
    source = re.search(r"/\S*/libm[.-]\S*", Path("/proc/self/maps").read_text()).group()
    shutil.copy(source, folder / "libjemalloc.so.2")
    done = seamline("run", "--malloc", "jemalloc", "program.py", cwd=folder, LD_LIBRARY_PATH=str(folder))
    found = json.loads(done.stdout)
    assert f"{folder}/libjemalloc.so.2" in found["maps"]
    assert found["environment"]["MALLOC_CONF"] == "dirty_decay_ms:-1,muzzy_decay_ms:-1"
    assert "MALLOC_MMAP_MAX_" not in found["environment"]


def test_errors_are_one_sentence(folder):
    done = seamline("run", "--malloc", "jemalloc", "program.py", cwd=folder, LD_PRELOAD="libtcmalloc_minimal.so.4")
    assert done.returncode == 1
    assert "Error: LD_PRELOAD brings tcmalloc already; unset LD_PRELOAD to run with jemalloc" in done.stderr
    assert "Traceback" not in done.stderr
    assert seamline("run", cwd=folder).returncode == 2


def test_a_shell_can_source_the_settings(folder):
    script = f"source <({sys.executable} -m seamline.cli env --pin) && env"
    found = dict(
        line.split("=", 1) for line in run("bash", "-c", script, cwd=folder, MKL_NUM_THREADS="9").stdout.splitlines()
    )
    assert found["MKL_NUM_THREADS"] == "9"
    assert found["MALLOC_MMAP_MAX_"] == "0"
    assert found["OMP_NUM_THREADS"] == found["OPENBLAS_NUM_THREADS"]
    assert "GOMP_CPU_AFFINITY" not in found  # the user has chosen a number of threads


def test_sourcing_twice_changes_nothing(folder):
    script = f"source <({sys.executable} -m seamline.cli env) && {sys.executable} -m seamline.cli env"
    assert run("bash", "-c", script, cwd=folder).stdout == ""


def test_every_line_says_why(folder):
    lines = seamline("env", cwd=folder).stdout.splitlines()
    assert len(lines) == len(THREAD_VARIABLES) + 4
    for line in lines:
        assert line.startswith("export ")
        assert len(line.partition("  # ")[2]) > 10
