"""Functions that travel by value, because our modules may be found only once they have run."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seamline.core import pickling


def places() -> list[str]:
    """Where this process finds modules, for another one on this machine or on one that sees the same files."""
    return [str(Path(place).absolute()) for place in sys.path]


def found(path: list[str], module: str, name: str) -> Any:
    """A function of one of our modules, looked for where the driver finds them; ``ImportError`` says what to do."""
    import importlib
    import os
    import socket
    import sys

    theirs = [place for place in path if os.path.exists(place)]  # noqa: PTH110
    sys.path[:] = theirs + [place for place in sys.path if place not in theirs]
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        where = f"{sys.executable} on {socket.gethostname()}"
        problem = f"seamline cannot be imported by {where} ({error}); install it for the Python of the executors"
        raise ImportError(problem) from None


def carried(entry: Callable[..., Any], orders: object, what: str) -> Callable[..., Any]:
    """A function that calls ``entry(orders, ...)`` of one of our modules wherever it is brought."""
    body = pickling.dumps(orders, what)
    return functools.partial(_enter, places(), entry.__module__, entry.__qualname__, body)


def _enter(path: list[str], module: str, name: str, orders: bytes, *arguments: Any) -> Any:
    import pickle

    entry = found(path, module, name)
    return entry(pickle.loads(orders), *arguments)


found.__module__ = _enter.__module__ = "__main__"  # functions of that module are pickled by value
