"""Several copies of a model, each on cores of its own, that serve one stream of batches."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from seamline.core import machine, registry
from seamline.core.errors import SeamlineError
from seamline.core.packet import Packet
from seamline.engines.local.service import Service, close_all, in_order, wait_until_all_ready

_BATCHES_EACH = 2
"""One that a copy works on, and one that waits so that it need not."""


class MultiInstance:
    """Call it with any iterable of batches; it returns a list with the output for each, in the same order.

    A batch that is a tuple is passed on as positional arguments, a dict as keyword arguments, anything else as the
    one argument. Batches are taken as they are needed, at most two for each copy ahead of the outputs. A model that
    raises, or a copy that dies, is a ``WorkerError``; the next call starts what has died again.

    The copies run in evaluation mode and without gradients where the model is of torch. Each has ``cores_per_process``
    cores, by default an equal share.
    """

    def __init__(self, model: Callable[..., Any], num_processes: int, cores_per_process: int | None = None) -> None:
        self.num_processes = num_processes
        self.cores_per_process = cores_per_process
        self._model = model
        self._places = _places(num_processes, cores_per_process)
        self._services: list[Service] = []
        self._close = weakref.finalize(self, close_all, self._services)
        self._start()

    def __call__(self, batches: Iterable[Any]) -> list[Any]:
        return list(self.stream(batches))

    def stream(self, batches: Iterable[Any]) -> Iterator[Any]:
        """The outputs one by one, each as soon as it and all before it are there."""
        self._start()
        yield from in_order(batches, self._ask, _BATCHES_EACH * self.num_processes)

    def close(self) -> None:
        """End the copies; closing twice does no harm."""
        self._close()

    def __enter__(self) -> MultiInstance:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, batch: Packet) -> Future[Packet]:
        return min(self._services, key=lambda service: service.unanswered).ask(batch)

    def _start(self) -> None:
        """Start the copies that do not run, and return when all are ready."""
        if not self._close.alive:
            raise SeamlineError("the copies of this model are closed; make new ones with to_multi_instance")
        gone = [i for i, service in enumerate(self._services) if service.ended]
        gone += range(len(self._services), self.num_processes)
        if not gone:
            return
        tensors_travel_as_arrays()
        setup = Packet.of(functools.partial(serve, self._model), "the model")
        for index in gone:
            cores, threads = self._places[index]
            service = Service(setup, name=f"copy {index}", cores=cores, threads=threads, ahead=_BATCHES_EACH)
            close_all(self._services[index : index + 1])
            self._services[index : index + 1] = [service]
        wait_until_all_ready(self._services)


def to_multi_instance(
    model: Callable[..., Any], *, num_processes: int, cores_per_process: int | None = None
) -> MultiInstance:
    """Start ``num_processes`` copies of a model that serve a stream of batches; see ``MultiInstance``."""
    return MultiInstance(model, num_processes, cores_per_process)


def serve(model: Callable[..., Any]) -> Callable[[Any], Any]:
    """The model as a function of one batch, however many arguments that holds."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        model.eval()
    answer = without_gradients(model)

    def call(batch: Any) -> Any:
        if isinstance(batch, tuple):
            return answer(*batch)
        if isinstance(batch, dict):
            return answer(**batch)
        return answer(batch)

    return call


def without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, in torch's inference mode whenever torch is in use."""
    tensors_travel_as_arrays()

    def call(*args: Any, **kwargs: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None:
            return function(*args, **kwargs)
        with torch.inference_mode():
            return function(*args, **kwargs)

    return call


def tensors_travel_as_arrays() -> None:
    """Let the tensors of the frameworks in use reach other processes without the cost of those frameworks' pickles."""
    for framework in registry.entries("frameworks").values():
        if framework.loaded():
            framework.load()  # which says how its tensors travel


def _places(num_processes: int, cores_per_process: int | None) -> list[tuple[tuple[int, ...] | None, int]]:
    """The cores and the number of threads of each process."""
    if num_processes < 1:
        raise ValueError(f"num_processes={num_processes} must be at least 1")
    if cores_per_process is not None and cores_per_process < 1:
        raise ValueError(f"cores_per_process={cores_per_process} must be at least 1")
    cores = machine.cores()
    wanted = num_processes * (cores_per_process or 1)
    if wanted > cores.count:
        asked = f"num_processes={num_processes}"
        if cores_per_process is not None:
            asked += f" with cores_per_process={cores_per_process}"
        warnings.warn(f"{asked} is more than the {cores.count} cores at hand; they take turns", stacklevel=4)
    if cores_per_process is None:
        pinned = not machine.user_pins()
        shares = [cores.share(index, num_processes) if pinned else None for index in range(num_processes)]
        return [(share, len(share) if share else cores.threads(num_processes)) for share in shares]
    if wanted > cores.count or cores.count < len(cores.allowed):
        return [(None, cores_per_process)] * num_processes
    firsts = range(0, wanted, cores_per_process)
    return [(cores.allowed[first : first + cores_per_process], cores_per_process) for first in firsts]
