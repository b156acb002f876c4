"""The first thing that Spark's Python processes do for us: look for modules where the driver finds them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from seamline.core import pickling
from seamline.core.by_value import carried, found, places

Entry = Callable[[Any, int, Iterator[Any]], Iterator[Any]]
"""What runs in a Spark task: with its orders, the number of its partition and what that holds."""


def remote(entry: Entry, orders: object, broadcasts: list[Any]) -> Callable[[int, Iterator[Any]], Iterator[Any]]:
    """A function for ``mapPartitionsWithIndex`` that calls ``entry`` of one of our modules."""
    body = pickling.dumps(orders, "the orders")
    return functools.partial(_enter, places(), entry.__module__, entry.__qualname__, body, broadcasts)


def remote_frame(entry: Entry, orders: object) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A function for ``mapInArrow`` that calls ``entry`` of one of our modules with the batches of its partition."""
    return functools.partial(_enter_frame, carried(entry, orders, "the orders"))


def _enter(
    path: list[str], module: str, name: str, orders: bytes, _broadcasts: list[Any], index: int, part: Iterator[Any]
) -> Iterator[Any]:
    import pickle

    try:
        entry = found(path, module, name)
    except ImportError as error:
        return iter([str(error)])
    return iter(entry(pickle.loads(orders), index, part))


def _enter_frame(entry: Callable[..., Iterator[Any]], batches: Iterator[Any]) -> Iterator[Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    return iter(entry(context.partitionId() if context else 0, batches))


_enter.__module__ = _enter_frame.__module__ = "__main__"  # functions of that module are pickled by value
