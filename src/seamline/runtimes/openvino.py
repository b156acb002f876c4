"""Serve through OpenVINO; int8 by NNCF."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from seamline.core import machine
from seamline.core.runtime import Calibration, Flat, Plan, Portable, Predictor

MODEL = "model.xml"
SHAPES_KEPT = 8
"""Compiled forms, one for each combination of input shapes, before falling back to one for all shapes."""

KERNELS_KEPT = 64
"""Of that one form: prepared kernels, of which it would keep thousands. Lengths 2 to 600 of a small encoder took 250 MB
with this and 540 MB without."""

_PRECISIONS = {"fp32": "f32", "bf16": "bf16", "int8": "f32"}


@functools.cache
def core() -> Any:
    """The one that stays for as long as the process does.

    Its CPU plugin gives the thread that loads it a new stack for signal handlers, and takes that memory away when it is
    destroyed, from whichever thread; the next signal of a child process would then end the program.
    """
    made = ov.Core()
    made.get_property("CPU", "FULL_DEVICE_NAME")  # loads the plugin, before NNCF makes a core of its own
    return made


class OpenVino:
    """Compiled models on the CPU, in the precision that was asked for: left alone, OpenVINO picks bf16 by itself."""

    name = "openvino"

    def plans(self, model: Portable, *, metric_given: bool) -> Iterable[Plan]:
        yield Plan(self.name)
        if machine.has_bf16():
            yield Plan(self.name, "bf16")
        yield Plan(self.name, "int8")
        if metric_given:
            yield Plan(self.name, "int8", "accuracy-aware")

    def build(self, model: Portable, plan: Plan, folder: Path, calibration: Calibration) -> None:
        graph = core().read_model(model.onnx())
        if plan.precision == "int8":
            graph = _quantised(graph, plan, calibration)
        ov.save_model(graph, folder / MODEL, compress_to_fp16=False)

    def load(self, folder: Path, plan: Plan, original: Any = None) -> Predictor:
        return OpenVinoPredictor(core().read_model(folder / MODEL), plan)


class OpenVinoPredictor:
    """A model compiled for the shapes that it meets.

    With fixed shapes int8 is about twice as fast as with dynamic ones, so each combination of input shapes gets a form
    of its own until there are many.
    """

    own_tensors = False

    def __init__(self, graph: Any, plan: Plan) -> None:
        self._graph = graph
        self._dynamic = graph.is_dynamic()
        self.shapes = [_sizes(port.partial_shape) for port in graph.inputs]
        self._settings = {
            "INFERENCE_PRECISION_HINT": _PRECISIONS[plan.precision],
            "PERFORMANCE_HINT": "LATENCY",  # calls come one at a time, whatever the goal, and each has all threads
            "INFERENCE_NUM_THREADS": plan.threads or machine.cores().count,
            "NUM_STREAMS": 1,
        }
        self._compiled: dict[Any, Any] = {}
        self._compiling = threading.Lock()
        self._mine = threading.local()

    def __call__(self, inputs: Flat) -> Flat:
        shapes = tuple(array.shape for array in inputs)
        requests: dict[Any, Any] = self._mine.__dict__
        request = requests.get(shapes)
        if request is None:
            request = self._request_for(shapes, requests)
        return request.answer(inputs)  # type: ignore[no-any-return]

    def _request_for(self, shapes: tuple[Any, ...], requests: dict[Any, Any]) -> Any:
        """This thread's request of a form: one for each shape that has a form of its own, and one for all others."""
        key, form = self._form_for(shapes)
        if key not in requests:
            requests[key] = _Request(form)
        if not self._dynamic:  # there is one shape, which the next call finds at once
            requests[shapes] = requests[key]
        return requests[key]

    def _form_for(self, shapes: tuple[Any, ...]) -> tuple[Any, Any]:
        for port, shape in zip(self._graph.inputs, shapes, strict=True):
            if not port.partial_shape.compatible(ov.PartialShape(list(shape))):  # reshaping would not mind
                raise ValueError(f"an input has shape {shape}, but the model takes {port.partial_shape}")
        with self._compiling:
            if shapes in self._compiled:
                return shapes, self._compiled[shapes]
            some_rows = all(all(shape) for shape in shapes)  # a form for no rows at all can end the process
            key = shapes if self._dynamic and some_rows and len(self._compiled) < SHAPES_KEPT else None
            if key not in self._compiled:
                graph = self._graph.clone()
                if key is not None:
                    graph.reshape({port: list(shape) for port, shape in zip(graph.inputs, shapes, strict=True)})
                self._compiled[key] = self._compile(graph) if key is not None else self._compile_for_all(graph)
            return key, self._compiled[key]

    def _compile(self, graph: Any, **more: Any) -> Any:
        return core().compile_model(graph, "CPU", {**self._settings, **more})

    def _compile_for_all(self, graph: Any) -> Any:
        """The form for all shapes; what it keeps for each that it meets is bounded where the plugin lets us."""
        try:
            return self._compile(graph, CPU_RUNTIME_CACHE_CAPACITY=KERNELS_KEPT)
        except RuntimeError:  # the plugin does not promise this setting
            return self._compile(graph)


class _Request:
    """One of a form's requests. Arrays that are as the form wants them are read where they lie."""

    __slots__ = ("_inputs", "_outputs", "_request", "_types")

    def __init__(self, form: Any) -> None:
        self._request = form.create_infer_request()
        self._types = [port.get_element_type().to_dtype() for port in form.inputs]
        self._outputs = range(len(form.outputs))
        self._inputs: Flat = []

    def answer(self, inputs: Flat) -> Flat:
        request = self._request
        if any(
            not a.flags.c_contiguous or a.dtype != t or not a.ndim for a, t in zip(inputs, self._types, strict=True)
        ):
            given = inputs[0] if len(inputs) == 1 else list(inputs)
            answer = request.infer(given, share_inputs=True, share_outputs=False)
            return [answer[port] for port in self._outputs]
        for port, array in enumerate(inputs):  # ``infer`` would take longer to find out the same
            request.set_input_tensor(port, ov.Tensor(array, shared_memory=True))
        self._inputs = inputs  # for as long as the request points at them
        request.infer(share_outputs=True)
        return [request.get_output_tensor(port).data.copy() for port in self._outputs]


def _sizes(shape: Any) -> tuple[int | None, ...]:
    return tuple(size.get_length() if size.is_static else None for size in shape)


def _quantised(graph: Any, plan: Plan, calibration: Calibration) -> Any:
    import nncf

    nncf.set_log_level(logging.ERROR)
    data = nncf.Dataset([[np.asarray(array) for array in batch] for batch in calibration.batches])
    options: dict[str, Any] = {"preset": nncf.QuantizationPreset.MIXED, "subset_size": len(calibration.batches)}
    if _attends(graph):
        options["model_type"] = nncf.ModelType.TRANSFORMER
    score = calibration.score
    if plan.variant != "accuracy-aware" or score is None:
        return nncf.quantize(graph, data, **options)

    def rate(compiled: Any, _: Any) -> tuple[float, None]:
        return score(_Compiled(compiled)), None

    return nncf.quantize_with_accuracy_control(
        graph, data, data, validation_fn=rate, max_drop=calibration.max_drop, **options
    )


def _attends(graph: Any) -> bool:
    """Whether it is a transformer, whose attention loses its meaning when it is quantised as other layers are."""
    kinds = [operation.get_type_name() for operation in graph.get_ops()]
    return "ScaledDotProductAttention" in kinds or kinds.count("Softmax") > 1


class _Compiled:
    """A model that NNCF has compiled, as a predictor."""

    own_tensors = False

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled

    def __call__(self, inputs: Flat) -> Flat:
        answer = self._compiled(list(inputs))
        return [answer[port] for port in range(len(answer))]
