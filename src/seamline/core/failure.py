"""How a failure travels from a worker to the driver, and how one is put into words."""

from __future__ import annotations

import pickle
import signal
import traceback

from seamline.core import pickling
from seamline.core.errors import WorkerLostError


def described(error: BaseException) -> tuple[str, bytes | None]:
    """An error's traceback, and the error itself where it survives pickling."""
    text = "".join(traceback.format_exception(error))
    try:
        body = pickling.dumps(error, "the error")
        pickle.loads(body)
    except Exception:
        return text, None
    return text, body


def restored(body: bytes | None) -> BaseException | None:
    """The error that ``described`` has packed."""
    return pickle.loads(body) if body is not None else None


def lost(rank: int, code: int | None) -> WorkerLostError:
    """A worker whose process has ended; a polite end is how machines are taken away."""
    text = f"worker {rank} {how_it_ended(code)} before it had a result"
    return WorkerLostError(rank, text, preempted=code == -signal.SIGTERM)


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    memory = " (when memory runs out the system does this: try fewer workers or smaller batches)"
    return f"was killed by {signal.Signals(-code).name}{memory if -code == signal.SIGKILL else ''}"
