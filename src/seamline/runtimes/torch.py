"""Serve a torch model with torch itself: other layouts, lower precision, compiled."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.jit._trace import TracerWarning

from seamline.core import machine
from seamline.core.errors import ExportError
from seamline.core.runtime import Calibration, Flat, Plan, Portable, Predictor
from seamline.runtimes.torch_files import load_module, store_program

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class TorchRuntime:
    """The module in other clothes; each is a copy, and the user's module stays as it is."""

    name = "torch"

    def plans(self, model: Portable, *, metric_given: bool) -> Iterable[Plan]:
        if not isinstance(model.flat, nn.Module):
            return
        images = any(parameter.ndim == 4 for parameter in model.flat.parameters())
        yield Plan(self.name)
        if images:
            yield Plan(self.name, variant="channels-last")
        if machine.has_bf16():
            yield Plan(self.name, "bf16", "channels-last" if images else "")
            yield Plan(self.name, "bf16", "weights")
        yield Plan(self.name, variant="compile")
        if machine.has_bf16():
            yield Plan(self.name, "bf16", "compile")
        if model.program() is None:
            yield Plan(self.name, variant="script")

    def build(self, model: Portable, plan: Plan, folder: Path, calibration: Calibration) -> None:
        store_program(model, folder)

    def load(self, folder: Path, plan: Plan, original: Any = None) -> Predictor:
        return TorchPredictor(load_module(folder, original), plan)


class TorchPredictor:
    """A flat module under inference mode, in the plan's precision and layout."""

    own_tensors = True

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        self._dtype = _DTYPES.get(plan.precision)
        self._threads = plan.threads
        self._device = next((p.device.type for p in module.parameters()), "cpu")
        self._channels_last = plan.variant in ("channels-last", "compile")
        self._whole = plan.variant == "weights"
        if self._channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self._whole:
            module = module.to(self._dtype)
        self._module: Any = module
        if plan.variant == "compile":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # torch's own imports
                importlib.import_module("torch._inductor.config")
            self._module = torch.compile(module)
        self._settings = freezing if plan.variant == "compile" else contextlib.nullcontext
        self._script = plan.variant == "script"

    def __call__(self, inputs: Flat) -> Flat:
        with torch.inference_mode(), self._autocast(), self._settings(), threads(self._threads):
            tensors = [self._prepared(tensor) for tensor in inputs]
            if self._script:
                self._freeze(tensors)
            outputs: Flat = self._module(*tensors)
        return [_in_full(tensor) for tensor in outputs]

    def _prepared(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._channels_last and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if self._whole and tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor

    def _autocast(self) -> AbstractContextManager[Any]:
        if self._dtype is None or self._whole:
            return contextlib.nullcontext()
        return torch.autocast(self._device, dtype=self._dtype)

    def _freeze(self, tensors: list[torch.Tensor]) -> None:
        with warnings.catch_warnings(record=True) as told:  # deprecated, and still the only way where export fails
            warnings.simplefilter("always")
            traced = torch.jit.trace(self._module, tuple(tensors), check_trace=False)  # type: ignore[no-untyped-call]
            self._module = torch.jit.freeze(traced)
        if any(issubclass(warning.category, TracerWarning) for warning in told):
            raise ExportError("a trace follows the numbers of one call, where this model decides by those of each")
        self._script = False


@contextlib.contextmanager
def threads(wanted: int | None) -> Iterator[None]:
    """So many threads within; changing them costs a few microseconds, so nothing is done where they are the same."""
    before = torch.get_num_threads()
    if wanted is None or wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def freezing() -> Iterator[None]:
    """Let what is compiled within take weights for constants; what others compile must not."""
    import torch._inductor.config as inductor

    before, inductor.freezing = inductor.freezing, True
    try:
        yield
    finally:
        inductor.freezing = before


def _in_full(tensor: Any) -> Any:
    """Answers in fp32, whatever they were computed in."""
    half = isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.bfloat16, torch.float16)
    return tensor.float() if half else tensor
