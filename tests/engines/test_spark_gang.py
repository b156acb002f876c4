"""What the driver of a Spark run makes of what it hears, over its real sockets and without Spark."""

import os
from dataclasses import dataclass

import pytest

from seamline.core.errors import WorkerError, WorkerLostError
from seamline.core.packet import Packet
from seamline.engines.spark.gang import Gang
from seamline.engines.spark.wire import Kind, Role, call


@dataclass
class RunningJob:
    """A Spark job that goes on, whatever happens to its tasks."""

    ended: bool = False
    error: Exception | None = None
    lost: bool = False
    session_lost: str | None = None

    def reason(self):
        return ""


@dataclass
class GivenUpJob(RunningJob):
    """A Spark job that has ended, and its tasks have not said a word."""

    answer: list | None = None


@pytest.fixture
def gang():
    work = [Packet.of(part, "work") for part in ("the task", "shard 0", "shard 1")]
    gang = Gang("127.0.0.1", "127.0.0.1", work, None, print)
    yield gang
    gang.hub.close()


@pytest.fixture
def join(gang):
    wires = []

    def join(role, rank, token=None):
        wires.append(call(gang.hub.address, token or gang.hub.token, role, rank))
        return wires[-1]

    yield join
    for wire in wires:
        wire.close()


def test_a_worker_gets_its_work_once_and_a_second_one_nothing(join):
    worker = join(Role.WORKER, 1)
    assert [worker.receive()[1].open() for _ in range(2)] == ["the task", "shard 1"]
    with pytest.raises(EOFError):
        join(Role.WORKER, 1)
    with pytest.raises(EOFError):
        join(Role.KEEPER, 2)


def test_nobody_comes_in_without_the_token(join, gang):
    with pytest.raises((EOFError, ConnectionError)):
        join(Role.WORKER, 0, token=os.urandom(32))
    assert join(Role.WORKER, 0).receive()[1].open() == "the task", "the stranger did not take the place"


def test_a_lost_task_is_the_cause_of_what_its_peers_report_before(join, gang):
    keepers = [join(Role.KEEPER, rank) for rank in range(2)]
    workers = [join(Role.WORKER, rank) for rank in range(2)]
    report = {"traceback": "PeerLostError: the connection was closed", "consequence": True, "error": None}
    workers[0].send(Kind.FAILED, Packet.of(report, "the error"))
    keepers[1].close()
    with pytest.raises(WorkerLostError, match="the Spark task of worker 1 has ended without a word") as caught:
        gang.serve(RunningJob(), None)
    assert caught.value.rank == 1


def test_workers_that_were_lost_with_their_session_are_nothing_to_go_on_without(join, gang):
    join(Role.WORKER, 0)
    join(Role.KEEPER, 0).close()
    with pytest.raises(WorkerError, match="the Spark task of worker 0 has ended without a word") as caught:
        gang.serve(RunningJob(error=ConnectionRefusedError(), session_lost="the JVM has ended"), 10)
    assert not isinstance(caught.value, WorkerLostError)


def test_a_job_that_spark_gave_up_for_its_losses_is_a_loss(join, gang):
    join(Role.WORKER, 0)
    with pytest.raises(WorkerLostError, match="Spark ended the workers"):
        gang.serve(GivenUpJob(ended=True, error=RuntimeError("lost"), lost=True), 10)


def test_a_result_that_arrives_after_the_news_of_its_workers_end_counts(join, gang):
    for rank in range(2):
        keeper, worker = join(Role.KEEPER, rank), join(Role.WORKER, rank)
        for _ in range(2):
            worker.receive()  # its work: a connection that ends with something unread ends at once, in both directions
        keeper.send(Kind.EXITED, Packet.of(0, "the exit code"))
        keeper.close()
        worker.send(Kind.DONE, Packet.of(rank * 10, "the result"))
        worker.close()
    assert gang.serve(RunningJob(), 10) == [0, 10]


def test_an_exit_without_a_result_is_told_in_words(join, gang):
    keeper, worker = join(Role.KEEPER, 0), join(Role.WORKER, 0)
    worker.close()
    keeper.send(Kind.EXITED, Packet.of(-9, "the exit code"))
    with pytest.raises(WorkerError, match="worker 0 was killed by SIGKILL"):
        gang.serve(RunningJob(), 10)
