"""Serve a torch model on an NVIDIA GPU: lower precision, other layouts, compiled, or replayed as a CUDA graph."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.core.runtime import Calibration, Flat, Plan, Portable, Predictor
from seamline.runtimes.torch_files import load_module, store_program

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class CudaRuntime:
    """Copies of the module on the first GPU; rows come from and go back to where the caller has them."""

    name = "cuda"

    def plans(self, model: Portable, *, metric_given: bool) -> Iterable[Plan]:
        if not torch.cuda.is_available() or not isinstance(model.flat, nn.Module):
            return
        images = any(parameter.ndim == 4 for parameter in model.flat.parameters())
        for precision in ("fp32", "bf16", "fp16"):
            yield Plan(self.name, precision)
            if images:
                yield Plan(self.name, precision, "channels-last")
            yield Plan(self.name, precision, "graph")
        yield Plan(self.name, "fp16", "compile")

    def build(self, model: Portable, plan: Plan, folder: Path, calibration: Calibration) -> None:
        store_program(model, folder)

    def load(self, folder: Path, plan: Plan, original: Any = None) -> Predictor:
        return CudaPredictor(load_module(folder, original).to("cuda"), plan)


class CudaPredictor:
    """A flat module on the GPU under inference mode."""

    own_tensors = True

    def __init__(self, module: nn.Module, plan: Plan) -> None:
        self._dtype = _DTYPES.get(plan.precision)
        self._channels_last = plan.variant in ("channels-last", "compile")
        if self._channels_last:
            module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._module: Any = torch.compile(module) if plan.variant == "compile" else module
        self._replays = plan.variant == "graph"
        self._graphs: dict[Any, _Recording] = {}

    def __call__(self, inputs: Flat) -> Flat:
        home = inputs[0].device
        tensors = [self._prepared(tensor) for tensor in inputs]
        with torch.inference_mode(), self._autocast():
            outputs = self._replay(tensors) if self._replays else self._module(*tensors)
            return [_in_full(tensor).to(home) for tensor in outputs]

    def _prepared(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.to("cuda", non_blocking=True)
        if self._channels_last and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def _autocast(self) -> AbstractContextManager[Any]:
        # A graph keeps what was cast while it was recorded; a cache of casts outside it would be freed.
        return torch.autocast("cuda", self._dtype, cache_enabled=False) if self._dtype else contextlib.nullcontext()

    def _replay(self, tensors: list[torch.Tensor]) -> Flat:
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._graphs:
            self._graphs[key] = _Recording(self._module, tensors)
        return self._graphs[key](tensors)


class _Recording:
    """The kernels of one call for one combination of shapes."""

    def __init__(self, module: Any, tensors: list[torch.Tensor]) -> None:
        self._inputs = [tensor.clone() for tensor in tensors]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries choose their kernels before the recording
            for _ in range(3):
                module(*self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = module(*self._inputs)

    def __call__(self, tensors: list[torch.Tensor]) -> Flat:
        for ours, given in zip(self._inputs, tensors, strict=True):
            ours.copy_(given)
        self._graph.replay()
        return [tensor.clone() for tensor in self._outputs]


def _in_full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor
