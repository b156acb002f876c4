"""What a worker does inside its actor."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any, TypeVar

import cloudpickle
import ray
from ray.util import get_node_ip_address

from seamline.core.errors import PeerLostError
from seamline.engines.ray.broadcast import Known
from seamline.engines.ray.outcome import Outcome
from seamline.engines.ray.parcel import Parcel

T = TypeVar("T")

_SAY_WITHIN_S = 0.2
"""How long the last word of a process that was told to end may take; its peers notice its end, not the word."""


class RayWorld:
    """A world whose members meet at an actor."""

    def __init__(self, rank: int, size: int, generation: int, meeting: Any) -> None:
        self.rank = rank
        self.size = size
        self.generation = generation
        self.host = get_node_ip_address()  # type: ignore[no-untyped-call]
        self._meeting = meeting
        self._reports = 0
        self._reporting = threading.Lock()

    def all_gather(self, value: T) -> list[T]:
        body = cloudpickle.dumps(value, protocol=5)
        values = self._asked(self._meeting.gather.remote(self.rank, self.generation, body))
        return [cloudpickle.loads(each) for each in values]

    def renew(self) -> None:
        self.generation = self._asked(self._meeting.renew.remote(self.generation))

    def _asked(self, answer: Any) -> Any:
        try:
            value, why = ray.get(answer)
        except ray.exceptions.RayActorError as error:
            raise PeerLostError("the process where the workers meet is gone") from error
        if value is None:
            raise PeerLostError(why)
        return value

    def report(self, message: object) -> None:
        body = cloudpickle.dumps(message, protocol=5)
        with self._reporting:
            self._meeting.report.remote(self.rank, self._reports, body)
            self._reports += 1

    def leave(self) -> None:
        """Return once all reports are where the driver finds them."""
        ray.get(self._meeting.leave.remote(self.rank, self._reports))


class _TakenAwayError(BaseException):
    """Somebody wants this process to end; Ray would make it an error of the program."""


def _be_taken_away(*_: object) -> None:
    raise _TakenAwayError


class Worker:
    """One member of a gang: an actor, so a process of its own that lives as long as the run."""

    def __init__(self, rank: int, size: int, meeting: Any, paths: list[str]) -> None:
        self._rank = rank
        self._size = size
        self._meeting = meeting
        find_modules(paths)

    def __repr__(self) -> str:
        """What Ray puts in front of the lines that this worker prints."""
        return f"worker {self._rank}"

    def ready(self) -> None:
        """Answered as soon as the process is there."""

    def run(self, known: Known, task: Parcel, shard: Parcel, generation: int) -> Outcome:
        world = RayWorld(self._rank, self._size, generation, self._meeting)
        before = signal.signal(signal.SIGTERM, _be_taken_away)
        try:
            known.install()
            result = task.open()(world, shard.open())
            outcome = Outcome(Parcel.of(result, "the result"))
        except _TakenAwayError:
            outcome = Outcome.taken_away(str(self))
            threading.Timer(_SAY_WITHIN_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
        except BaseException as error:
            outcome = Outcome.of_failure(error)
        finally:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
        sys.stdout.flush()
        sys.stderr.flush()
        if outcome.result is not None:
            world.leave()
        return outcome


def find_modules(paths: list[str]) -> None:
    """Find the modules that the driver finds, those next to its script included."""
    sys.path += [path for path in paths if path not in sys.path]
