"""Threads, pinning and the allocator: what is set where, and that it works in real processes."""

import json
import os
import subprocess
import sys

import pytest

from seamline.core.errors import UnavailableError
from seamline.core.machine import OUR_VARIABLES, Cores
from seamline.nano import machine
from seamline.nano.machine import allocator, preload, threads
from seamline.nano.machine.effect import allocation_loop

LOOP = """
import json, os, resource, sys
from seamline.nano.machine import tune_allocator
if sys.argv[1] == "tuned":
    done = tune_allocator()
    assert done.applied, done
    assert tune_allocator() is done
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    bytearray(64 * 2**20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def python(program, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "LD_PRELOAD"))}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=60, check=True, env={**environment, **variables},
    )  # fmt: skip
    return json.loads(done.stdout)


def values(settings):
    return {setting.name: setting.value for setting in settings}


def test_a_tuned_process_meets_a_third_of_the_page_faults_or_fewer():
    plain, tuned = python(LOOP, "plain"), python(LOOP, "tuned")
    assert plain > 6 * 16_000  # every page of every block
    assert tuned * 3 <= plain


def test_variables_do_the_same_from_outside_and_for_children():
    plain = allocation_loop((), {})
    tuned = allocation_loop(machine.settings(environment={}), {})
    assert tuned.page_faults * 3 <= plain.page_faults


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MALLOC_ARENA_MAX", "2"),
        ("MALLOC_TRIM_THRESHOLD_", "1000000"),
        ("GLIBC_TUNABLES", "glibc.malloc.trim_threshold=1000000"),
        ("LD_PRELOAD", "/usr/lib/libtcmalloc_minimal.so.4"),
    ],
)
def test_an_allocator_that_the_user_has_tuned_is_left_alone(name, value):
    done = machine.tune_allocator({name: value})
    assert not done.applied
    assert done.parameters == ()
    assert ("tcmalloc" if name == "LD_PRELOAD" else name) in done.why
    assert not any(setting.startswith("MALLOC_") for setting in values(machine.settings(environment={name: value})))


def test_a_variable_of_the_user_really_survives_in_a_process():
    program = (
        "import json; from seamline.nano.machine import tune_allocator; t = tune_allocator(); "
        "print(json.dumps([t.applied, t.why]))"
    )
    assert python(program, MALLOC_ARENA_MAX="2") == [False, "MALLOC_ARENA_MAX is set"]


def test_a_library_that_brings_an_allocator_for_itself_changes_nothing():
    program = (
        "import json, openvino; from seamline.nano.machine import current_allocator, tune_allocator; "
        "assert 'tbbmalloc' in open('/proc/self/maps').read(); "
        "print(json.dumps([current_allocator(), tune_allocator().applied]))"
    )
    assert python(program) == ["glibc", True]


@pytest.mark.parametrize(("gigabytes", "pad_mb"), [(64, 256), (16, 256), (4, 64), (1, 16)])
def test_the_heap_grows_in_smaller_pieces_where_memory_is_short(gigabytes, pad_mb):
    by_name = {parameter.variable: parameter.value for parameter in allocator.parameters(gigabytes * 2**30)}
    assert by_name == {
        "MALLOC_MMAP_MAX_": 0,
        "MALLOC_TRIM_THRESHOLD_": 2**31 - 1,
        "MALLOC_TOP_PAD_": pad_mb * 2**20,
    }


def topology(folder, siblings):
    for core, together in siblings.items():
        (folder / f"cpu{core}" / "topology").mkdir(parents=True)
        (folder / f"cpu{core}" / "topology" / "thread_siblings_list").write_text(together)
    return folder


@pytest.mark.parametrize(("quota", "count"), [(None, "2"), (3.0, "2"), (1.5, "1")])
def test_threads_are_the_cores_of_silicon_within_affinity_and_quota(tmp_path, quota, count):
    pairs = topology(tmp_path, {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5"})
    found = values(threads.thread_settings({}, Cores((0, 1, 4, 5), quota), pairs))
    assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == count


def test_threads_that_the_user_has_chosen_stay():
    found = values(machine.settings(environment={"OMP_NUM_THREADS": "7"}))
    assert "OMP_NUM_THREADS" not in found
    assert "MKL_NUM_THREADS" in found
    assert "OMP_NUM_THREADS" not in found[OUR_VARIABLES].split(",")


def test_pinning_names_one_core_for_each_thread(tmp_path):
    pairs = topology(tmp_path, {2: "2,6", 6: "2,6", 3: "3,7"})
    assert values(threads.pinning_settings({}, Cores((2, 3, 6), None), pairs)) == {"GOMP_CPU_AFFINITY": "2 3"}


@pytest.mark.parametrize(
    ("cores", "environment"),
    [
        (Cores(tuple(range(8)), quota=2.0), {}),
        (Cores((0, 1), quota=None), {"OMP_PROC_BIND": "false"}),
        (Cores((0, 1), quota=None), {"OMP_NUM_THREADS": "1"}),
    ],
)
def test_nothing_is_pinned_under_a_quota_or_against_the_user(cores, environment):
    assert list(threads.pinning_settings(environment, cores)) == []


def test_settings_that_are_there_already_are_not_made_again():
    made = values(machine.settings(environment={}))
    assert set(made[OUR_VARIABLES].split(",")) == set(made) - {OUR_VARIABLES}
    assert machine.settings(environment=made) == ()


def test_workers_still_take_their_share_of_cores_that_seamline_run_has_counted():
    from seamline.core import machine as core

    ours = values(machine.settings(environment={}))
    assert core.thread_settings(1, ours)["OMP_NUM_THREADS"] == "1"
    assert not core.user_pins(ours)
    assert core.user_pins({**ours, "OMP_PROC_BIND": "true"})


def test_versioned_libraries_are_found_where_they_lie(tmp_path):
    for file in ("libtcmalloc_minimal.so.4.5.10", "libtcmalloc_minimal.so.4", "libjemalloc.so.2"):
        (tmp_path / file).touch()
    absent = tmp_path / "absent"
    assert preload.find_library("tcmalloc", [absent, tmp_path]).name == "libtcmalloc_minimal.so.4"
    found = values(preload.preload_settings("jemalloc", {"LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": "libmine.so"}))
    assert found == {
        "LD_PRELOAD": f"libmine.so:{tmp_path}/libjemalloc.so.2",
        "MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1",
    }


def test_the_jemalloc_inside_the_ray_wheel_is_found(tmp_path, monkeypatch):
    (tmp_path / "ray" / "core").mkdir(parents=True)
    (tmp_path / "ray" / "__init__.py").write_text("raise AssertionError('ray is looked at, not imported')")
    (tmp_path / "ray" / "core" / "libjemalloc.so").touch()
    monkeypatch.syspath_prepend(tmp_path)
    folders = preload.library_folders({})
    assert preload.find_library("jemalloc", folders[-1:]) == tmp_path / "ray" / "core" / "libjemalloc.so"


def test_options_of_jemalloc_that_the_user_has_set_stay():
    environment = {"LD_PRELOAD": "/opt/libjemalloc.so.2", "MALLOC_CONF": "narenas:1"}
    assert machine.settings("jemalloc", environment=environment)[-1].name == OUR_VARIABLES
    assert not {"LD_PRELOAD", "MALLOC_CONF"} & set(values(machine.settings("jemalloc", environment=environment)))


@pytest.mark.parametrize(("name", "package"), [("tcmalloc", "libtcmalloc-minimal4"), ("jemalloc", "libjemalloc2")])
def test_a_missing_library_comes_with_the_command_that_brings_it(tmp_path, name, package):
    with pytest.raises(UnavailableError, match=f"^{name} is not on this machine; apt-get install {package}$"):
        preload.find_library(name, [tmp_path])


def test_two_preloaded_allocators_are_one_too_many():
    with pytest.raises(ValueError, match="LD_PRELOAD brings tcmalloc already; unset LD_PRELOAD to run with jemalloc"):
        machine.settings("jemalloc", environment={"LD_PRELOAD": "/usr/lib/libtcmalloc.so.4"})
