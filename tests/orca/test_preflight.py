"""What is looked at before a run starts: each finding from data, and all of them from real workers."""

import threading
from dataclasses import replace

import pytest

from seamline.core.cluster import Capacity
from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.world import Alone
from seamline.engines.clusters.local import LocalCluster
from seamline.orca import preflight
from seamline.orca.preflight import Finding, Place, Report

ROOM = Capacity(nodes=2, slots=4, cores_per_node=2)
HERE = Place(
    host="driver",
    python="3.11.4",
    packages={"seamline": "0.3.0", "cloudpickle": "3.1.2", "numpy": "2.4.6", "pyarrow": "26.0.1", "torch": "2.13.0"},
    memory_bytes=8 * 2**30,
)


def there(host="node-1", python="3.11.4", memory_bytes=8 * 2**30, unreachable=None, **packages):
    return Place(host, python, {**HERE.packages, **packages}, memory_bytes, unreachable)


def verdicts(findings):
    return [finding.verdict for finding in findings]


# Each look


@pytest.mark.parametrize(("workers", "verdict"), [(1, "ok"), (4, "ok"), (5, "problem")])
def test_workers_need_as_many_slots(workers, verdict):
    assert preflight.slots(ROOM, workers).verdict == verdict


def test_too_few_slots_are_told_with_both_numbers():
    text = preflight.slots(ROOM, 5).text
    assert "5 workers" in text
    assert "there are 4 on 2 nodes" in text
    assert "ask for fewer workers" in text


def test_dynamic_allocation_is_a_problem_with_the_setting_that_ends_it():
    assert preflight.allocation(ROOM).verdict == "ok"
    finding = preflight.allocation(replace(ROOM, elastic=True))
    assert finding.verdict == "problem"
    assert "spark.dynamicAllocation.enabled=false" in finding.text


def test_what_cannot_travel_is_named_by_its_variable():
    lock = threading.Lock()

    def task(world, shard):
        return lock

    finding, size = preflight.travel(task)
    assert finding.verdict == "problem"
    assert "'lock'" in finding.text
    assert size == 0


def test_the_size_of_a_task_counts_its_arrays_and_its_tensors():
    import numpy as np
    import torch

    import seamline.frameworks.torch  # noqa: F401 - tells how tensors travel

    array, tensor = np.zeros(1_000_000), torch.zeros(1_000_000)
    finding, size = preflight.travel(lambda world, shard: (array, tensor))
    assert finding.verdict == "ok"
    assert 12_000_000 <= size < 12_100_000


@pytest.mark.parametrize(
    ("size", "verdict"),
    [(2**20, "ok"), (2**30, "ok"), (2 * 2**30, "warning"), (5 * 2**30, "problem")],
)
def test_a_host_needs_room_for_all_of_its_workers(size, verdict):
    assert preflight.memory([there("a"), there("a"), there("b", memory_bytes=2**40)], size).verdict == verdict


def test_a_small_container_on_a_large_host_counts_as_small():
    assert preflight.memory([there("a", memory_bytes=2**40)], 2**30, node_bytes=2**40).verdict == "ok"
    assert preflight.memory([there("a", memory_bytes=2**40)], 2**30, node_bytes=2**29).verdict == "problem"


def test_memory_names_the_host_that_is_too_small():
    finding = preflight.memory([there("big", memory_bytes=2**40), there("small", memory_bytes=2**20)], 2**30)
    assert finding.text.startswith("small has 0.0 GB free, and 1 workers on it get 1.0 GB each")


@pytest.mark.parametrize(("version", "verdict"), [("3.11.4", "ok"), ("3.11.9", "ok"), ("3.12.4", "problem")])
def test_python_has_to_be_of_one_minor_version(version, verdict):
    assert preflight.python(HERE, [there(), there("node-2", version)]).verdict == verdict


def test_another_python_is_told_with_its_host():
    text = preflight.python(HERE, [there(), there("node-2", "3.12.4")]).text
    assert "the driver runs Python 3.11.4 and node-2 3.12.4" in text
    assert "PYSPARK_PYTHON" in text


@pytest.mark.parametrize(
    ("package", "version", "verdict"),
    [
        ("torch", "2.13.0", "ok"),
        ("torch", "2.12.1", "warning"),
        ("torch", "1.13.1", "problem"),
        ("torch", None, "problem"),
        ("numpy", "1.26.4", "problem"),
        ("pyarrow", "26.0.0", "warning"),
        ("cloudpickle", "2.2.1", "problem"),
        ("seamline", "0.3.1", "problem"),
    ],
)
def test_packages_have_to_agree(package, version, verdict):
    findings = list(preflight.packages(HERE, [there(), there("node-2", **{package: version})]))
    assert verdicts(findings) == ([verdict, "ok"] if verdict != "ok" else ["ok"])
    if verdict != "ok":
        assert package in findings[0].text
        assert "node-2" in findings[0].text
        assert "node-1" not in findings[0].text


def test_what_the_driver_does_not_have_the_workers_need_not_have():
    here = replace(HERE, packages={**HERE.packages, "torch": None})
    assert verdicts(preflight.packages(here, [there(torch=None)])) == ["ok"]


def test_an_unreachable_worker_is_a_problem_and_a_silent_one_a_warning():
    assert preflight.network([there(), there()], {0, 1}).verdict == "ok"
    silent = preflight.network([there(), there()], {0})
    assert silent.verdict == "warning"
    assert silent.text.startswith("what worker 1 reports does not reach the driver")
    cut_off = preflight.network([there(), there(unreachable="worker 1 cannot reach worker 0")], {0, 1})
    assert cut_off.verdict == "problem"
    assert "open the ports" in cut_off.text


def test_a_package_that_workers_lack_to_be_asked_at_all_is_named():
    error = WorkerError(0, "Traceback ...\nModuleNotFoundError: No module named 'seamline.core'")
    assert preflight.silence(error).startswith("seamline is not installed where the workers run; install it there")


# Meeting


class Towards(Alone):
    """A worker of two whose peer says that it is at ``peer``."""

    def __init__(self, peer, host="127.0.0.1"):
        object.__setattr__(self, "peer", peer)
        super().__init__(rank=0, size=2, host=host)

    def all_gather(self, value):
        return [value, self.peer]


def test_a_closed_port_is_found_and_named():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()
    told = preflight.tell(Towards(free), None).unreachable
    assert told.startswith("worker 0 on 127.0.0.1 cannot reach worker 1 at 127.0.0.1")


def test_an_address_that_is_not_of_the_machine_is_found():
    told = preflight.tell(Towards(None, host="192.0.2.77"), None).unreachable
    assert told.startswith("worker 0 cannot listen on 192.0.2.77")


# The report


def test_all_problems_come_in_one_error():
    report = Report(
        (Finding("a", "first; do this", "problem"), Finding("b", "fine"), Finding("c", "second", "problem"))
    )
    with pytest.raises(SeamlineError, match=r"for 2 reasons:\n1\. first; do this\n2\. second$"):
        report.require()
    assert report.warnings == []


def test_one_problem_is_one_sentence():
    with pytest.raises(SeamlineError, match=r"^this run cannot work: only this$"):
        Report((Finding("a", "only this", "problem"),)).require()


def test_a_report_without_problems_lets_the_run_go_on():
    report = Report((Finding("a", "hm", "warning"), Finding("b", "fine")))
    report.require()  # raises where there is a problem
    assert report.problems == []
    assert report.warnings == ["hm"]


def test_the_report_is_a_table_with_each_finding():
    shown = str(Report((Finding("cluster", "Spark at local[2]"), Finding("slots", "too few", "problem"))))
    assert "Preflight" in shown
    assert "Spark at local[2]" in shown
    assert any("slots" in line and "too few" in line and "problem" in line for line in shown.splitlines())


def test_real_workers_are_asked_and_meet():
    cluster = LocalCluster(cores=2)
    report = preflight.examine(cluster, 2, lambda world, shard: None)
    cluster.close()
    assert report.problems == []
    assert {finding.about: finding.text for finding in report.findings}["network"] == (
        "workers reach each other and the driver"
    )
    assert any("the same everywhere" in finding.text and "torch" in finding.text for finding in report.findings)


def test_a_look_without_asking_starts_no_worker():
    report = preflight.examine(LocalCluster(cores=2), 2, ask=False)
    assert [finding.about for finding in report.findings] == ["cluster", "slots", "allocation"]
