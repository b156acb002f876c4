"""How a task ended, on its way from a worker to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, WorkerCrashedError

from seamline.core.errors import PeerLostError, WorkerError, WorkerLostError
from seamline.core.failure import described, restored
from seamline.engines.ray.parcel import Parcel


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result, or a failure that travels as a traceback and, where it can, as itself."""

    result: Parcel | None = None
    traceback: str = ""
    error: bytes | None = None
    consequence: bool = False
    lost: bool = False
    preempted: bool = False

    @classmethod
    def taken_away(cls, who: str) -> Outcome:
        return cls(traceback=f"{who} was told to end (SIGTERM)", lost=True, preempted=True)

    @classmethod
    def of_failure(cls, error: BaseException) -> Outcome:
        text, body = described(error)
        return cls(traceback=text, error=body, consequence=isinstance(error, PeerLostError))

    @classmethod
    def taken(cls, ref: Any, who: str) -> Outcome:
        """What has arrived; a process that left no word is a failure too."""
        try:
            outcome: Outcome = ray.get(ref)
        except RayError as error:
            preempted = bool(getattr(error, "preempted", False))  # as far as Ray knows
            return cls(traceback=_obituary(who, error), lost=_is_loss(error), preempted=preempted)
        return outcome

    def failure(self, rank: int) -> WorkerError:
        failure = WorkerError(rank, self.traceback)
        if self.lost:
            failure = WorkerLostError(rank, self.traceback, self.preempted)
        failure.__cause__ = restored(self.error)
        return failure


def arrived(refs: Iterable[Any], within_s: float) -> set[Any]:
    """All that is there, as soon as something is."""
    refs = list(refs)
    ray.wait(refs, timeout=max(0.0, within_s), fetch_local=False)
    return set(ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0])


def _obituary(who: str, error: RayError) -> str:
    """Ray does not learn how a process ended, so all that can be said is what it may have been."""
    why = (
        "its process was killed (SIGKILL, as when memory runs out: try fewer workers or smaller batches), crashed in "
        "native code, or called os._exit"
        if _is_loss(error)
        else "Ray could not run it"
    )
    return f"{who} ended without a result: {why}.\n\nRay says: {error}"


def _is_loss(error: RayError) -> bool:
    return isinstance(error, (RayActorError, WorkerCrashedError)) and "creation task" not in str(error)
