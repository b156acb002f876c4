"""Running a task on the active context, once or until it has survived."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from seamline.core import registry
from seamline.core.engine import Listener
from seamline.core.errors import SeamlineError, WorkerError, WorkerLostError
from seamline.core.events import Note
from seamline.core.retry import Budget, RetryPolicy
from seamline.orca.context import OrcaContext

Result = TypeVar("Result")


def workers_of_context(asked: int | None) -> int:
    """As many as were asked for, else one for each node of the active context, else one."""
    context = OrcaContext.current()
    if asked is not None:
        return asked
    return 1 if context is None else context.default_workers()


def launch(task: Callable[..., Any], shards: Sequence[Any], listen: Listener | None = None) -> list[Any]:
    """On the active context; without one, one worker here and several in processes.

    An error of ours comes out as itself.
    """
    context = OrcaContext.current()
    if context is None:
        engine = registry.engine("inline" if len(shards) == 1 else "local")
    else:
        context.prepare(len(shards), task)
        engine = context.engine(len(shards))
    try:
        return engine.run(task, shards, listen=listen)
    except WorkerError as error:
        if isinstance(error.__cause__, SeamlineError):
            raise error.__cause__ from error
        raise
    finally:
        if context is None:
            engine.close()


def persevere(attempt: Callable[[int], Result], policy: RetryPolicy, show: Listener) -> Result:
    """Try again after each loss that the policy pays for; the last loss comes out as itself."""
    budget = Budget(policy)
    for number in itertools.count():
        try:
            return attempt(number)
        except WorkerLostError as loss:
            wait_s = budget.spend(loss)
            if wait_s is None:
                raise
            show(0, Note(f"{_first_line(loss)}; the run starts again"))
            time.sleep(wait_s)
    raise AssertionError("counting never ends")


def _first_line(loss: WorkerLostError) -> str:
    return loss.traceback.strip().splitlines()[0].rstrip(".")
