"""Values that Spark carries to every executor once."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from seamline.core.engine import Value
from seamline.core.packet import Packet

if TYPE_CHECKING:
    from pyspark import SparkContext

_values: dict[int, Any] = {}
"""What this process has opened."""
_places: dict[int, Path] = {}
"""Where the values lie that a worker's process may read, which Spark itself does not know."""
_noting = threading.local()


class SparkBroadcast(Generic[Value]):
    """A value in Spark's block stores; the handle knows its number, and on the driver Spark's own handle."""

    def __init__(self, number: int, inner: Any = None) -> None:
        self._number = number
        self._inner = inner

    @property
    def value(self) -> Value:
        if self._number not in _values:
            _values[self._number] = Packet(_parts(self._number)).open()
        value: Value = _values[self._number]
        return value

    def release(self) -> None:
        if self._inner is not None:
            _values.pop(self._number, None)
            self._inner.destroy()
            self._inner = None

    def __reduce__(self) -> tuple[Any, ...]:
        noted = getattr(_noting, "used", None)
        if noted is not None and self._inner is not None:
            noted[self._number] = self._inner
        return SparkBroadcast, (self._number,)


def share(context: SparkContext, value: Value) -> SparkBroadcast[Value]:
    inner = context.broadcast(Packet.of(value, "the value").parts)
    number = int(inner._jbroadcast.id())
    _values[number] = value
    return SparkBroadcast(number, inner)


@contextlib.contextmanager
def used() -> Iterator[dict[int, Any]]:
    """Spark's handles of the broadcasts that are pickled meanwhile, for the job that needs them."""
    before = getattr(_noting, "used", None)
    _noting.used = {}
    try:
        yield _noting.used
    finally:
        _noting.used = before


def found_at(places: Mapping[int, Path]) -> None:
    """Tell a worker's process where its broadcasts lie."""
    _places.update(places)


def forget_released() -> None:
    """Let go of the values that Spark has taken back from this Python process."""
    from pyspark.core.broadcast import _broadcastRegistry

    for number in [number for number in _values if number not in _broadcastRegistry]:
        del _values[number]


def _parts(number: int) -> Any:
    if number in _places:
        with _places[number].open("rb") as file:
            return pickle.load(file)
    from pyspark.core.broadcast import _broadcastRegistry

    if number not in _broadcastRegistry:
        raise ValueError("what should be read here was released, or belongs to another Spark session")
    return _broadcastRegistry[number].value
