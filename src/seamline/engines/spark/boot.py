"""The first thing that Spark's Python processes do for us: look for modules where the driver finds them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from seamline.core import pickling

Entry = Callable[[Any, int, Iterator[Any]], Iterator[Any]]
"""What runs in a Spark task: with its orders, the number of its partition and what that holds."""


def remote(entry: Entry, orders: object, broadcasts: list[Any]) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    """A function for ``mapPartitionsWithIndex`` that calls ``entry`` of one of our modules."""
    path = [str(Path(place).absolute()) for place in sys.path]
    body = pickling.dumps(orders, "the orders")
    return functools.partial(_enter, path, entry.__module__, entry.__qualname__, body, broadcasts)


def remote_frame(entry: Entry, orders: object) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for ``mapInArrow`` that calls ``entry`` of one of our modules with the batches of its partition."""
    path = [str(Path(place).absolute()) for place in sys.path]
    body = pickling.dumps(orders, "the orders")
    return functools.partial(_enter_frame, path, entry.__module__, entry.__qualname__, body)


def _enter(
    path: list[str], module: str, name: str, orders: bytes, _broadcasts: list[Any], index: int, part: Iterator[Any]
) -> Iterator[Any]:
    # Self-contained: it travels by value, because our modules may be found only once it has run.
    import importlib
    import os
    import pickle
    import socket
    import sys

    theirs = [place for place in path if os.path.exists(place)]  # noqa: PTH110
    sys.path[:] = theirs + [place for place in sys.path if place not in theirs]
    try:
        entry = getattr(importlib.import_module(module), name)
    except ImportError as error:
        where = f"{sys.executable} on {socket.gethostname()}"
        return iter([f"seamline cannot be imported by {where} ({error}); install it for the Python of the executors"])
    return iter(entry(pickle.loads(orders), index, part))


def _enter_frame(path: list[str], module: str, name: str, orders: bytes, batches: Iterator[Any]) -> Iterator[Any]:
    # As self-contained as the other.
    import importlib
    import os
    import pickle
    import socket
    import sys

    from pyspark import TaskContext

    theirs = [place for place in path if os.path.exists(place)]  # noqa: PTH110
    sys.path[:] = theirs + [place for place in sys.path if place not in theirs]
    try:
        entry = getattr(importlib.import_module(module), name)
    except ImportError as error:
        where = f"{sys.executable} on {socket.gethostname()}"
        problem = f"seamline cannot be imported by {where} ({error}); install it for the Python of the executors"
        raise RuntimeError(problem) from None
    context = TaskContext.get()
    return iter(entry(pickle.loads(orders), context.partitionId() if context else 0, batches))


_enter.__module__ = _enter_frame.__module__ = "__main__"  # functions of that module are pickled by value
