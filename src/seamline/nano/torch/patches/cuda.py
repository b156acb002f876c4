"""CUDA's names with the CPU behind them, for programs that were written for a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from seamline.nano.torch.patches.replaced import Replaced

_CPU = torch.device("cpu")
_WITHOUT_EFFECT = (
    "synchronize",
    "empty_cache",
    "set_device",
    "set_stream",
    "init",
    "ipc_collect",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "set_per_process_memory_fraction",
)


class OnCpu(TorchFunctionMode):
    """While it is entered, every torch function that is asked for CUDA uses the CPU; of this thread only."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            return args[0].to(_CPU, memory_format=kwargs.get("memory_format", torch.preserve_format))
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *(_to_cpu(value) if place == 0 else value for place, value in enumerate(args[1:])))
        elif func is torch.Tensor.type:
            args = (args[0], *(_plain_type(value) for value in args[1:]))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _to_cpu(kwargs["device"])}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


class Stream:
    """The one order in which a CPU does things; waiting for it is never needed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = _CPU

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def query(self) -> bool:
        return True

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


class Event:
    """A moment, on this machine's clock."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._at_s = 0.0

    def record(self, stream: object = None) -> None:
        self._at_s = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds, as CUDA's events say them."""
        return 1000 * (end._at_s - self._at_s)

    def synchronize(self) -> None: ...

    def wait(self, stream: object = None) -> None: ...

    def query(self) -> bool:
        return True


def replace_cuda(replaced: Replaced, available: bool) -> None:
    """Everything that no torch function mode sees: loading, generators, and the functions of ``torch.cuda``."""
    for name in _WITHOUT_EFFECT:
        replaced.put(torch.cuda, name, _always(None))
    replaced.put(torch.cuda, "current_device", _always(0))
    replaced.put(torch.cuda, "Stream", Stream)
    replaced.put(torch.cuda, "Event", Event)
    for name in ("current_stream", "default_stream", "stream", "device"):
        replaced.put(torch.cuda, name, _always(Stream()))
    for name in [name for name in vars(torch.cuda) if name.endswith("Tensor") and hasattr(torch, name)]:
        replaced.put(torch.cuda, name, getattr(torch, name))
    if available:
        replaced.put(torch.cuda, "is_available", _always(True))
        replaced.put(torch.cuda, "device_count", _always(1))
        replaced.put(torch.cuda, "get_device_name", _always("CPU in place of CUDA"))
    replaced.put(torch, "load", _loading(torch.load))
    replaced.put(torch.jit, "load", _loading(torch.jit.load))
    replaced.put(torch, "Generator", _generator(torch.Generator))
    replaced.put(torch.nn.Module, "to", _moving(torch.nn.Module.to))
    replaced.put(DeviceContext, "__init__", _default_device(DeviceContext.__init__))
    replaced.put(threading.Thread, "run", _on_cpu(threading.Thread.run))


def _always(answer: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch's compiler refuses one that has several."""
    return lambda *args, **kwargs: answer


def _to_cpu(value: Any) -> Any:
    """A device argument that means CUDA, as the CPU; everything else as it is."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _CPU
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return _CPU
    return _CPU if isinstance(value, torch.device) and value.type == "cuda" else value


def _plain_type(value: Any) -> Any:
    return value.replace("torch.cuda.", "torch.") if isinstance(value, str) else value


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """Loading onto the CPU what was saved on a GPU, or is asked to go there."""

    def load_on_cpu(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(map_location, dict):
            map_location = {saved: str(_to_cpu(wanted)) for saved, wanted in map_location.items()}
        else:
            map_location = _CPU if map_location is None else _to_cpu(map_location)
        return load(f, map_location, *args, **kwargs)

    return load_on_cpu


def _moving(to: Callable[..., Any]) -> Callable[..., Any]:
    """Modules look at a device's number before any tensor moves."""

    def to_cpu(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _to_cpu(kwargs["device"])
        return to(self, *map(_to_cpu, args[:1]), *args[1:], **kwargs)

    return to_cpu


def _generator(real: type[torch.Generator]) -> type:
    """Generators are made by a class of C, which modes do not see."""

    class OfReal(type):
        def __call__(cls, device: Any = _CPU) -> torch.Generator:
            return real(device=_to_cpu(device))

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    return OfReal("Generator", (), {"__module__": real.__module__, "__doc__": real.__doc__})


def _default_device(init: Callable[..., None]) -> Callable[..., None]:
    """``with torch.device("cuda")`` and ``torch.set_default_device``, which come after every other mode."""

    def on_cpu(self: DeviceContext, device: Any) -> None:
        init(self, _to_cpu(device))

    return on_cpu


def _on_cpu(run: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """Modes belong to a thread; threads of the program get theirs."""

    def run_on_cpu(self: threading.Thread) -> None:
        with OnCpu():
            run(self)

    return run_on_cpu
