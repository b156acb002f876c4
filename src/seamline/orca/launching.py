"""Running a task on the active context, once or until it has survived."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from seamline.core import registry
from seamline.core.engine import Engine, Listener, Replace
from seamline.core.errors import PeerLostError, SeamlineError, WorkerError, WorkerLostError
from seamline.core.events import Note
from seamline.core.retry import Budget, RetryPolicy
from seamline.orca.context import OrcaContext
from seamline.orca.crew import Crew, MoreRoomError

Result = TypeVar("Result")


def workers_of_context(asked: int | None) -> int:
    """As many as were asked for, else one for each node of the active context, else one."""
    return Crew.of(asked).most


def launch(
    task: Callable[..., Any], shards: Sequence[Any], listen: Listener | None = None, replace: Replace | None = None
) -> list[Any]:
    """On the active context; without one, one worker here and several in processes.

    An error of ours comes out as itself; but workers that have lost each other, while none has ended, are a loss.
    """
    context = OrcaContext.current()
    if context is not None:
        context.prepare(len(shards), task)
    with _engine(len(shards)) as engine:
        try:
            return engine.run(task, shards, listen=listen, replace=replace)
        except WorkerError as error:
            if isinstance(error.__cause__, PeerLostError):
                lost = f"worker {error.rank} has lost the connection to a peer\n\n{error.traceback}"
                raise WorkerLostError(error.rank, lost) from error
            if isinstance(error.__cause__, SeamlineError):
                raise error.__cause__ from error
            raise


@contextlib.contextmanager
def _engine(workers: int) -> Iterator[Engine]:
    context = OrcaContext.current()
    if context is not None:
        yield context.engine(workers)
        return
    engine = registry.engine("inline" if workers == 1 else "local")
    try:
        yield engine
    finally:
        engine.close()


def persevere(attempt: Callable[[int, Replace], Result], policy: RetryPolicy, show: Listener) -> Result:
    """Try again after each loss that the policy pays for; the last loss comes out as itself.

    An attempt gets its number, which is that of the losses before it, and may replace single workers at the same cost.
    One that ends because there is room for more workers costs nothing.
    """
    budget, grown = Budget(policy), 0

    def replace(loss: WorkerLostError) -> bool:
        if budget.spend(loss) is None:
            return False
        show(0, Note(f"{_first_line(loss)}; another takes its place"))
        return True

    while True:
        try:
            return attempt(budget.spent + grown, replace)
        except MoreRoomError as room:
            grown += 1
            show(0, Note(f"{room}; the run goes on with them from its newest checkpoint"))
        except WorkerLostError as loss:
            wait_s = budget.spend(loss)
            if wait_s is None:
                raise
            show(0, Note(f"{_first_line(loss)}; the run starts again"))
            time.sleep(wait_s)
            context = OrcaContext.current()
            if context is not None:
                context.mend()


def _first_line(loss: WorkerLostError) -> str:
    return loss.traceback.strip().splitlines()[0].rstrip(".;")
