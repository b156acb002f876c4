"""The Spark engine: the engine contract in local mode and on a cluster, and what Spark's faults must not cost."""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from seamline.core.errors import RunTimeoutError, SeamlineError, WorkerError
from seamline.engines.spark import SparkEngine
from seamline.engines.spark.session import active
from seamline.testing import EngineContract
from tests.engines.faults import (
    ENDED_WITHIN_S,
    JVM,
    Killer,
    assert_a_killed_python_is_named,
    note_and_wait,
    program,
    still_running,
    wait_for_notes,
)
from tests.engines.inventory import host, is_nursery
from tests.engines.spark_cluster import in_one_process, on_a_cluster

KINDS = {"local": in_one_process, "cluster": on_a_cluster}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=list(KINDS))
def spark(request):
    """One session of each kind; pytest runs all tests of one before it makes the next."""
    with KINDS[request.param]() as (session, conf):
        session.test_conf = conf
        yield session


@pytest.fixture
def engine(spark):
    return SparkEngine(spark)


only_on_a_cluster = pytest.mark.parametrize("spark", ["cluster"], indirect=True)


class TestSparkEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _program(self, spark):
        conf = {**spark.test_conf, "spark.cores.max": "2"}
        type(self).setup = f"from seamline.engines.spark import SparkEngine; engine = SparkEngine(conf={conf!r})"


# Room


def test_too_many_workers_are_refused_before_anything_starts(spark, tmp_path):
    engine = SparkEngine(spark, slots_within_s=0.2)
    before = time.monotonic()
    with pytest.raises(SeamlineError, match=r"9 workers asked, but the cluster has 4 free slots; use fewer workers"):
        engine.run(lambda world, shard: (tmp_path / "started").touch(), range(9))
    assert time.monotonic() - before < 5
    assert not list(tmp_path.iterdir())


def test_cores_for_each_worker_are_counted_and_need_a_cluster(spark):
    def threads(world, shard):
        return os.environ["OMP_NUM_THREADS"]

    engine = SparkEngine(spark, task_cores=2)
    if spark.sparkContext.master.startswith("local"):
        with pytest.raises(SeamlineError, match="task_cores=2 needs a cluster"):
            engine.run(threads, [0])
    else:
        assert engine.run(threads, [0, 0]) == ["2", "2"]
        impatient = SparkEngine(spark, task_cores=2, slots_within_s=0.2)
        with pytest.raises(SeamlineError, match="3 workers asked, but the cluster has 2 free slots"):
            impatient.run(threads, [0, 0, 0])


# What is seen from outside


def command_lines(pids):
    return "\n".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in pids if psutil.pid_exists(pid))


@only_on_a_cluster
def test_a_cluster_of_our_own_is_for_this_program_alone(spark):
    family = psutil.Process().children(recursive=True)
    jvms = [process for process in family if process.name() == "java"]
    assert len(jvms) >= 4, "the driver's, the master's and two workers'"
    assert spark.test_conf["spark.authenticate.secret"] not in command_lines(process.pid for process in family)
    listening = [c.laddr.ip for jvm in jvms for c in jvm.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    assert len(listening) >= 4
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


# What workers are told, and what they say


def test_workers_know_their_host_threads_and_folder(spark, monkeypatch):
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def look(world, shard):
        return world.host, os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"], str(Path.cwd())

    assert SparkEngine(spark, threads=3).run(look, [0, 0]) == [("127.0.0.1", "3", "7", str(Path.cwd()))] * 2


def test_workers_of_an_executor_are_forks_of_one_process_also_in_the_next_run(spark):
    def where(world, shard):
        parent = psutil.Process().parent()
        return parent.pid, is_nursery(parent)

    engine = SparkEngine(spark)
    executors = 1 if spark.sparkContext.master.startswith("local") else 2
    born = {*engine.run(where, [0, 0, 0, 0]), *engine.run(where, [0, 0])}
    assert len(born) == executors
    assert all(is_one for _, is_one in born)


def test_what_workers_print_arrives_with_their_rank(spark):
    lines = []

    def speak(world, shard):
        print(f"I have {shard}")
        os.write(2, b"native\n")
        print("no end", end="")

    SparkEngine(spark, tell=lambda *line: lines.append(line)).run(speak, ["a", "b"])
    for rank, shard in enumerate("ab"):
        assert [line for line in lines if line[:2] == (rank, "stdout")] == [
            (rank, "stdout", f"I have {shard}"),
            (rank, "stdout", "no end"),
        ]
        assert (rank, "stderr", "native") in lines


def test_the_last_words_of_a_dying_worker_are_heard(spark):
    lines = []

    def speak_and_die(world, shard):
        print("my last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError, match="SIGKILL"):
        SparkEngine(spark, tell=lambda *line: lines.append(line)).run(speak_and_die, [0])
    assert (0, "stdout", "my last words") in lines


def test_a_broadcast_reaches_workers_that_meet(engine):
    handle = engine.broadcast({"array": np.arange(100_000)})
    assert engine.run(lambda world, shard: int(handle.value["array"][shard]), [5, 99_999]) == [5, 99_999]
    handle.release()


def test_a_run_that_takes_too_long_is_stopped_and_says_who_is_late(spark):
    SparkEngine(spark).run(lambda world, shard: None, [0, 0])  # so that workers start at once
    with pytest.raises(RunTimeoutError, match=r"not done after 2 s; still at work: worker 1"):
        SparkEngine(spark, timeout_s=2).run(lambda world, shard: time.sleep(shard), [0, 60])


def test_the_session_of_the_user_is_used_and_left_running(spark):
    engine = SparkEngine()
    assert engine.run(lambda world, shard: shard, [1, 2]) == [1, 2]
    assert engine.session is spark
    engine.close()
    assert active() is spark
    assert spark.sparkContext.parallelize([1, 2, 3], 1).count() == 3


def test_nothing_stays_open_after_many_runs(engine):
    def count():
        hubs = [thread for thread in threading.enumerate() if thread.name == "seamline-hub"]
        return psutil.Process().num_fds(), len(hubs)

    engine.run(lambda world, shard: 0, [0, 0])
    engine.map(lambda item: item, [0, 0])
    before = count()
    for _ in range(3):
        engine.run(lambda world, shard: 0, [0, 0])
        engine.map(lambda item: item, [0, 0])
    with pytest.raises(WorkerError):
        engine.run(lambda world, shard: 1 / 0, [0, 0])
    deadline = time.monotonic() + 5
    while count() > before and time.monotonic() < deadline:  # Spark closes its threads' connections when it gets to it
        time.sleep(0.02)
    assert count() <= before


def test_strangers_at_the_drivers_port_disturb_nobody(engine):
    def visit(world, shard):
        # Knock at every port that the driver listens on, say nonsense, and stay.
        driver = psutil.Process(shard)
        ports = {c.laddr.port for c in driver.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        visits = [socket.create_connection(("127.0.0.1", port)) for port in ports]
        for connection in visits:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n" * 20)
        addresses = {c.laddr.ip for c in driver.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        return len(visits), addresses, world.all_gather(world.rank)

    for count, addresses, gathered in engine.run(visit, [os.getpid()] * 2):
        assert count >= 1
        assert addresses == {"127.0.0.1"}
        assert gathered == [0, 1]


# Faults


def test_a_killed_python_of_spark_is_named_and_nothing_stays(engine, tmp_path):
    assert_a_killed_python_is_named(engine, tmp_path)
    assert engine.run(lambda world, shard: shard, [1, 2]) == [1, 2]


def test_a_worker_that_ends_alone_takes_its_children_with_it(engine, tmp_path):
    def lose_the_keeper(world, shard):
        if world.rank == 1:
            time.sleep(300)
        child = subprocess.Popen(["sleep", "300"])
        (tmp_path / "child").write_text(str(child.pid))
        for guard in psutil.Process().children():  # it would do the work if it came first
            if guard.pid != child.pid:
                guard.suspend()
        host().kill()
        world.all_gather("the answer is that the run is over")

    with pytest.raises(WorkerError, match="the Spark task of worker 0 has ended without a word"):
        engine.run(lose_the_keeper, [0, 0])
    assert still_running([int((tmp_path / "child").read_text())], within_s=2) == []


@only_on_a_cluster
def test_a_lost_executor_is_named_and_nothing_stays(engine, tmp_path):
    killer = Killer(tmp_path, rank=1, which=JVM)
    with pytest.raises(
        WorkerError,
        match=r"worker 1 has ended without a word.*executor",
    ) as caught:
        engine.run(note_and_wait(tmp_path), [0, 0])
    assert killer.seconds_since() < ENDED_WITHIN_S
    assert caught.value.rank in (0, 1)  # both may have been on that executor
    first, second = wait_for_notes(tmp_path)
    assert still_running([*first[:2], *second], within_s=2) == []
    assert len(list(tmp_path.glob("*.note"))) == 2, "Spark ran a worker again"
    assert engine.run(lambda world, shard: shard, [1, 2]) == [1, 2], "Spark replaces the executor"


@only_on_a_cluster
def test_a_map_survives_the_loss_of_an_executor(engine, tmp_path):
    def lose_the_executor_once(item):
        if item == 1 and not (tmp_path / "lost").exists():
            (tmp_path / "lost").touch()
            jvm = next(parent for parent in psutil.Process().parents() if "java" in parent.name())
            jvm.kill()
            time.sleep(30)
        return item + 1

    assert engine.map(lose_the_executor_once, range(4)) == [1, 2, 3, 4]


PROGRAM = """
import sys
from pathlib import Path
from seamline.engines.spark import SparkEngine, StandaloneCluster
from seamline.engines.spark.session import session
from tests.engines.faults import note_and_wait
from tests.engines.spark_cluster import LIGHT
folder, kind = Path(sys.argv[1]), sys.argv[2]
conf = {**LIGHT, "spark.master": "local[2]"}
if kind == "cluster":
    cluster = StandaloneCluster(workers=1, cores_per_worker=2)
    conf = {**LIGHT, **cluster.conf}
spark = session(conf)
spark.sparkContext.parallelize(range(100), 4).map(lambda x: (x % 7, x)).groupByKey(3).count()
SparkEngine(spark).run(note_and_wait(folder), [0, 0])
"""


def the_driver_is_killed(driver, inventory):
    driver.kill()
    return ""


def ctrl_c(driver, inventory):
    os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to all that were not given a group of their own
    return "KeyboardInterrupt"


def the_jvm_of_the_session_is_killed(driver, inventory):
    next(process for process in inventory.processes if "SparkSubmit" in command_lines([process.pid])).kill()
    return "has ended without a word: the JVM of the Spark session has ended or was killed"


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("local", the_driver_is_killed),
        ("local", ctrl_c),
        ("local", the_jvm_of_the_session_is_killed),
        ("cluster", the_driver_is_killed),
        ("cluster", ctrl_c),
    ],
)
def test_nothing_is_left_when(kind, fault, tmp_path):
    with program(PROGRAM, tmp_path, kind) as (driver, inventory):
        commands = command_lines(process.pid for process in inventory.processes)
        assert "spark.driver.host" in commands
        assert "authenticate.secret" not in commands
        before = time.monotonic()
        last_word = fault(driver, inventory)
        driver.wait(ENDED_WITHIN_S)
        assert inventory.left(within_s=ENDED_WITHIN_S - (time.monotonic() - before)) == []
        assert last_word in (tmp_path / "said").read_text()
