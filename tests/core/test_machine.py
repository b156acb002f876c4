"""Cores and memory within all limits."""

import os
import re
from pathlib import Path

import pytest

from seamline.core import machine
from seamline.core.machine import Cores


def test_shares_are_disjoint_and_complete():
    cores = Cores(tuple(range(3, 13)), quota=None)
    shares = [cores.share(worker, 4) for worker in range(4)]
    assert sorted(sum(shares, ())) == list(range(3, 13))
    assert [len(share) for share in shares] == [3, 3, 2, 2]
    assert cores.threads(4) == 2


def test_nothing_is_pinned_under_a_quota_or_with_more_workers_than_cores():
    assert Cores(tuple(range(64)), quota=2.0).share(0, 2) is None
    assert Cores((0, 1), quota=None).share(0, 3) is None
    assert Cores((0, 1), quota=None).threads(3) == 1


@pytest.mark.parametrize(("quota", "count"), [(None, 8), (2.5, 2), (0.5, 1), (100.0, 8)])
def test_a_quota_limits_the_count(quota, count):
    assert Cores(tuple(range(8)), quota).count == count


def test_affinity_is_respected():
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert machine.cores().allowed == (min(allowed),)
    finally:
        os.sched_setaffinity(0, allowed)


def test_the_tightest_group_of_cgroup_v2_counts(tmp_path):
    inner = tmp_path / "user.slice" / "job"
    inner.mkdir(parents=True)
    (tmp_path / "user.slice" / "cpu.max").write_text("150000 100000\n")
    (inner / "cpu.max").write_text("max 100000\n")
    (inner / "memory.max").write_text("1073741824\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/user.slice/job\n")
    folders = machine.cgroup_folders(tmp_path, membership)
    assert machine.cpu_quota(folders) == 1.5
    assert machine.memory_limit(folders) == 2**30


def test_cgroup_v1_is_read_too(tmp_path):
    group = tmp_path / "cpu,cpuacct" / "docker"
    group.mkdir(parents=True)
    (group / "cpu.cfs_quota_us").write_text("200000")
    (group / "cpu.cfs_period_us").write_text("100000")
    (tmp_path / "cpu,cpuacct" / "cpu.cfs_quota_us").write_text("-1")
    membership = tmp_path / "membership"
    membership.write_text("4:cpu,cpuacct:/docker\n")
    assert machine.cpu_quota(machine.cgroup_folders(tmp_path, membership)) == 2.0


def test_no_limit_is_no_limit(tmp_path):
    folders = machine.cgroup_folders(tmp_path, tmp_path / "absent")
    assert machine.cpu_quota(folders) is None
    assert machine.memory_limit(folders) is None


def test_variables_of_the_user_are_not_touched():
    settings = machine.thread_settings(2, {"OMP_NUM_THREADS": "7"})
    assert "OMP_NUM_THREADS" not in settings
    assert settings["MKL_NUM_THREADS"] == "2"
    assert machine.user_pins({"KMP_AFFINITY": "compact"})
    assert not machine.user_pins({})


def test_a_worker_elsewhere_gets_the_users_variables_and_our_number_for_the_others():
    variables = machine.worker_variables(
        3, {"MKL_NUM_THREADS": "7", "OMP_NUM_THREADS": "9", machine.OUR_VARIABLES: "OMP_NUM_THREADS"}
    )
    assert variables.keys() == set(machine.THREAD_VARIABLES)
    assert variables["MKL_NUM_THREADS"] == "7"
    assert variables["OMP_NUM_THREADS"] == "3", "that one was set by `seamline run`, for this process"


def test_variables_are_set_for_a_while_and_put_back(monkeypatch):
    monkeypatch.setenv("KNOWN", "before")
    with machine.variables_set({"KNOWN": "meanwhile", "NEW": "1"}):
        assert machine.environment({"NEW": "2"})["KNOWN"] == "meanwhile"
        assert machine.environment()["NEW"] == "1"
    assert machine.environment()["KNOWN"] == "before"
    assert "NEW" not in machine.environment()


@pytest.mark.parametrize("package", ["engines", "orca"])
def test_the_environment_is_read_here_alone(package):
    folder = Path(machine.__file__).parents[1] / package
    files = [file for file in folder.rglob("*.py") if re.search(r"os\.(environ|getenv)", file.read_text())]
    assert files == []
