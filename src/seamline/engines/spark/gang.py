"""The driver's side of one run: answer the workers until each is done, or find the one that failed first."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import Any

from seamline.core.engine import Listener
from seamline.core.errors import RunTimeoutError, WorkerError, WorkerLostError
from seamline.core.failure import lost, restored
from seamline.core.output import Teller
from seamline.core.packet import Packet
from seamline.engines.spark.hub import Hub, Message
from seamline.engines.spark.job import Job
from seamline.engines.spark.keeper import UNREACHABLE
from seamline.engines.spark.wire import Kind, Role, Wire

_LOOK_EVERY_S = 0.05
_CAUSE_WITHIN_S = 2.0
"""How long to wait for the cause once a worker has reported what can only be a consequence, or Spark has given up."""
_JOIN_WITHIN_S = 60.0
"""Spark starts all tasks of the stage together; so long after the first the last must have called."""
_FINISH_WITHIN_S = 1.0
"""How long Spark may take to notice that all tasks have ended; a server that is gone never does."""
_LEAVE_WITHIN_S = 4.0
"""How long the Spark tasks may take to end by themselves before Spark is told to end them."""


@dataclass(slots=True)
class _Member:
    """What the driver knows of one worker."""

    keeper: Wire | None = None
    worker: Wire | None = None
    silent: bool = False  # the worker's connection has ended
    left: bool = False  # the keeper's connection has ended
    gathering: Packet | None = None
    result: Packet | None = None
    failed: bool = False
    exit_code: int | None = None

    @property
    def done(self) -> bool:
        return self.result is not None

    @property
    def busy(self) -> bool:
        return not self.done and not self.failed

    @property
    def dead(self) -> bool:
        """Ended without a result or an error; both of its connections have told all they know."""
        return self.busy and self.silent and self.exit_code is not None


class Gang:
    """All workers of one run."""

    def __init__(self, host: str, advertised: str, work: list[Packet], listen: Listener | None, tell: Teller) -> None:
        task, *shards = work
        self._task = task
        self._shards = shards
        self._listen = listen
        self._tell = tell
        self._members = [_Member() for _ in shards]
        self._joining = threading.Lock()
        self._join_by: float | None = None
        self.hub = Hub(host, self._welcome, advertised=advertised)

    def _welcome(self, role: Role, rank: int, wire: Wire) -> list[Packet] | None:
        """Each worker comes once: Spark may run a task again, and a gang cannot go on with a part of it anew."""
        with self._joining:
            if rank >= len(self._members):
                return None
            member = self._members[rank]
            if role is Role.KEEPER and member.keeper is None:
                member.keeper = wire
                return []
            if role is Role.WORKER and member.worker is None:
                member.worker = wire
                return [self._task, self._shards[rank]]
        return None

    def serve(self, job: Job, timeout_s: float | None) -> list[Any]:
        """The results in rank order; raises as soon as it is known which worker failed."""
        end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
        suspect: WorkerError | None = None
        deadline = float("inf")
        while not all(member.done for member in self._members):
            failure = self._look()
            if failure is None and suspect is None and job.ended and self.hub.inbox.empty():
                failure = _ConsequenceError(self._first_busy(), _told_by(job))
            if failure is not None and not isinstance(failure, _ConsequenceError):
                raise failure from failure.__cause__
            gone = isinstance(suspect, _LostError)
            if failure is not None and (suspect is None or (isinstance(failure, _LostError) and not gone)):
                suspect, deadline = failure, time.monotonic() + _CAUSE_WITHIN_S
                gone = isinstance(suspect, _LostError)
            nobody_else = self._first_busy() is None  # who could still tell the cause
            if suspect is not None and (time.monotonic() > deadline or nobody_else or (gone and job.error is not None)):
                raise _verdict(suspect, job) from suspect.__cause__
            self._expect_all()
            if time.monotonic() > end:
                late = ", ".join(str(rank) for rank, member in enumerate(self._members) if member.busy)
                raise RunTimeoutError(f"not done after {timeout_s:g} s; still at work: worker {late}")
        return [member.result.open() for member in self._members if member.result is not None]

    def _expect_all(self) -> None:
        absent = [rank for rank, member in enumerate(self._members) if member.worker is None]
        if not absent or len(absent) == len(self._members):
            return
        self._join_by = self._join_by or time.monotonic() + _JOIN_WITHIN_S
        if time.monotonic() > self._join_by:
            raise WorkerError(absent[0], f"worker {absent[0]} {UNREACHABLE.format(*self.hub.address)}")

    def _look(self) -> WorkerError | None:
        try:
            message = self.hub.inbox.get(timeout=_LOOK_EVERY_S)
        except queue.Empty:
            return None
        if message.role is Role.KEEPER:
            return self._hear_keeper(message)
        return self._hear_worker(message)

    def _hear_keeper(self, message: Message) -> WorkerError | None:
        rank, member = message.number, self._members[message.number]
        if message.kind is Kind.LINE:
            stream, line = message.body.parts
            self._tell(rank, "stdout" if stream == b"stdout" else "stderr", bytes(line).decode("utf-8", "replace"))
        elif message.kind is Kind.EXITED:
            member.exit_code = message.body.open()
        elif message.kind is None:
            member.left = True
            if member.exit_code is None and member.busy:
                return _LostError(rank, f"the Spark task of worker {rank} has ended without a word")
        return self._obituary(rank)

    def _hear_worker(self, message: Message) -> WorkerError | None:
        rank, member = message.number, self._members[message.number]
        if message.kind is Kind.FAILED:
            member.failed = True
            return _failure(rank, message.body.open())
        if message.kind is Kind.REPORT:
            if self._listen is not None:
                self._listen(rank, message.body.open())
        elif message.kind is Kind.DONE:
            member.result = message.body
        elif message.kind is Kind.GATHER:
            member.gathering = message.body
        else:
            member.silent = True
            return self._obituary(rank)
        self._answer_gathers()
        return None

    def _obituary(self, rank: int) -> WorkerError | None:
        member = self._members[rank]
        if not member.dead:
            return None
        member.failed = True
        return lost(rank, member.exit_code)

    def _answer_gathers(self) -> None:
        waiting = [member for member in self._members if member.gathering is not None]
        if len(waiting) == len(self._members):
            everything = [member.gathering for member in waiting if member.gathering is not None]
            for member in waiting:
                member.gathering = None
                for part in everything:
                    _say(member.worker, Kind.ALL, part)
        gone = next((rank for rank, member in enumerate(self._members) if member.done), None)
        if gone is not None:
            self._release(f"worker {gone} has finished and takes part in no further all_gather")

    def _release(self, why: str) -> list[_Member]:
        """Tell those who wait for their peers that they wait in vain."""
        waiting = [member for member in self._members if member.gathering is not None]
        for member in waiting:
            member.gathering = None
            _say(member.worker, Kind.LOST, Packet.of(why, "the reason"))
        return waiting

    def _first_busy(self) -> int | None:
        return next((rank for rank, member in enumerate(self._members) if member.busy), None)

    def stop(self, job: Job | None) -> None:
        """Leave no process behind; those that wait for a peer are told, the others are ended."""
        try:
            noticing = self._release("another worker failed, and the run is over")
            for member in self._members:
                if not member.done:
                    _say(member.keeper, Kind.STOP, Packet((b"gently" if member in noticing else b"now",)))
            if job is not None:
                self._drain(job)
        finally:
            self.hub.close()
            if job is not None:
                job.cancel()
                job.wait(_LEAVE_WITHIN_S)

    def _drain(self, job: Job) -> None:
        """Pass on the last words while the tasks end; once nobody is there to speak, Spark has to hurry."""
        deadline = time.monotonic() + _LEAVE_WITHIN_S
        while time.monotonic() < deadline and not (job.ended and self.hub.inbox.empty()):
            with contextlib.suppress(queue.Empty):
                message = self.hub.inbox.get(timeout=0.01)
                if message.role is Role.KEEPER:
                    self._hear_keeper(message)
            if all(member.left or member.keeper is None for member in self._members):
                deadline = min(deadline, time.monotonic() + _FINISH_WITHIN_S)


class _ConsequenceError(WorkerError):
    """What may have a cause that is still to be heard: another worker's failure is the one to report."""


class _LostError(_ConsequenceError):
    """A Spark task is gone; Spark may say why."""


def _say(wire: Wire | None, kind: Kind, body: Packet) -> None:
    if wire is not None:
        wire.send_if_open(kind, body)


def _failure(rank: int, report: dict[str, Any]) -> WorkerError:
    failure = (_ConsequenceError if report["consequence"] else WorkerError)(rank, report["traceback"])
    failure.__cause__ = restored(report["error"])
    return failure


def _verdict(suspect: WorkerError, job: Job) -> WorkerError:
    """What is raised when no other cause was heard of; with its session a run has lost what it could go on with."""
    gone = isinstance(suspect, _LostError)
    text = f"{suspect.traceback}{_because(job)}" if gone else suspect.traceback
    survivable = (gone or job.lost) and job.session_lost is None
    return WorkerLostError(suspect.rank, text) if survivable else WorkerError(suspect.rank, text)


def _told_by(job: Job) -> str:
    said = [line for line in job.answer or [] if line]
    return said[0] if said else f"Spark ended the workers: {job.reason() or 'it does not say why'}"


def _because(job: Job) -> str:
    return f": {job.reason()}" if job.reason() else " (its Python process was killed, or the machine is gone)"
