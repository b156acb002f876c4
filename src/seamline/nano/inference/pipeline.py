"""Steps of one program, each in a process of its own, that work on different items at the same time."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from seamline.core.errors import SeamlineError, WorkerError
from seamline.core.packet import Packet
from seamline.engines.local.service import Service, close_all, in_order, wait_until_all_ready
from seamline.nano.inference.multi_instance import tensors_travel_as_arrays, without_gradients

Stage = Callable[[Any], Any] | tuple[str, Callable[[Any], Any]]
"""A function of one item, or its name and the function."""

_ITEMS_EACH = 2
"""One that a stage works on, and one that waits so that it need not."""


class Pipeline:
    """``Pipeline([decode, ("model", model), draw]).run(items)`` is ``[draw(model(decode(item))) for item in items]``.

    Each stage runs in its own process, without gradients where torch is in use. Items are taken as they are needed,
    at most two for each stage ahead of the results. A stage that raises or dies is a ``WorkerError`` that names the
    stage and the item; all stages are then ended, and the next run starts them again.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        if not stages:
            raise ValueError("a pipeline needs at least one stage")
        self._stages = [_named(position, stage) for position, stage in enumerate(stages)]
        self._services: list[Service] = []
        self._close = weakref.finalize(self, close_all, self._services)
        self._start()

    def run(self, items: Iterable[Any]) -> list[Any]:
        """The result for each item, in the order of the items."""
        return list(self.stream(items))

    def stream(self, items: Iterable[Any]) -> Iterator[Any]:
        """The results one by one, each as soon as it and all before it are there."""
        self._start()
        services = list(self._services)
        try:
            yield from in_order(items, functools.partial(_through, services), _ITEMS_EACH * len(services))
        except WorkerError:
            self._stop(services)
            raise

    def close(self) -> None:
        """End the stages; closing twice does no harm."""
        self._close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _start(self) -> None:
        """Start the stages unless all run, and return when they are ready."""
        if not self._close.alive:
            raise SeamlineError("this pipeline is closed; make a new one")
        if any(service.ended for service in self._services):
            self._stop(self._services)
        if not self._services:
            tensors_travel_as_arrays()
            for name, function in self._stages:
                setup = functools.partial(without_gradients, function)
                self._services.append(Service(setup, name=name, ahead=_ITEMS_EACH))
        wait_until_all_ready(self._services)

    def _stop(self, services: list[Service]) -> None:
        close_all(services)
        self._services[:] = [service for service in self._services if service not in services]


def _through(services: list[Service], item: Packet) -> Future[Packet]:
    """What comes out at the end when the item has gone through all services; its answers travel unopened."""
    result: Future[Packet] = Future()

    def pass_on(rest: list[Service], packet: Packet) -> None:
        rest[0].ask(packet).add_done_callback(functools.partial(arrived, rest[1:]))

    def arrived(rest: list[Service], answer: Future[Packet]) -> None:
        error = answer.exception()
        if error is not None:
            result.set_exception(error)
        elif rest:
            pass_on(rest, answer.result())
        else:
            result.set_result(answer.result())

    pass_on(services, item)
    return result


def _named(position: int, stage: Stage) -> tuple[str, Callable[[Any], Any]]:
    name, function = stage if isinstance(stage, tuple) else (getattr(stage, "__name__", type(stage).__name__), stage)
    if not callable(function):
        raise TypeError(f"stage {position} {name!r} must be a function, but it is {function!r}")
    return f"stage {position} {name!r}", function
