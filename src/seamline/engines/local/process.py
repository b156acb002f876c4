"""Starting a worker process, and saying how one has ended."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
from typing import Any

from seamline.core import pickling

_BOOT = (
    "import importlib, json, sys; sys.path[:] = json.loads(sys.argv[2]); importlib.import_module(sys.argv[3]).main()"
)


def start(
    module: str, settings: dict[str, Any], fds: tuple[int, ...], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    """A process that runs ``main`` of a module, with its settings on the command line and the descriptors inherited.

    It finds the modules that this process finds, and leads a process group of its own.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _BOOT, json.dumps(settings), json.dumps(sys.path), module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **variables},
        pass_fds=fds,
        start_new_session=True,
    )


def how_it_ended(code: int | None) -> str:
    """An exit code in words."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    memory = " (when memory runs out the system does this: try fewer workers or smaller batches)"
    return f"was killed by {signal.Signals(-code).name}{memory if -code == signal.SIGKILL else ''}"


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
