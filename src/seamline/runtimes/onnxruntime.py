"""Serve through ONNX Runtime; knows nothing of where the model came from."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from seamline.core import machine
from seamline.core.files import link_or_copy
from seamline.core.runtime import Calibration, Flat, Plan, Portable, Predictor

MODEL = "model.onnx"


class OnnxRuntime:
    """Sessions on the CPU: as exported, and quantised with or without calibration."""

    name = "onnxruntime"

    def plans(self, model: Portable, *, metric_given: bool) -> Iterable[Plan]:
        return [Plan(self.name), Plan(self.name, "int8", "static"), Plan(self.name, "int8", "dynamic")]

    def build(self, model: Portable, plan: Plan, folder: Path, calibration: Calibration) -> None:
        source = model.onnx()
        if plan.precision == "fp32":
            link_or_copy(source, folder / MODEL)
            for weights in source.parent.glob(f"{source.name}.*"):  # large models keep their weights beside them
                link_or_copy(weights, folder / weights.name)
        elif plan.variant == "dynamic":
            _quantise_dynamically(source, folder / MODEL)
        else:
            _quantise_statically(source, folder / MODEL, calibration.batches)

    def load(self, folder: Path, plan: Plan, original: Any = None) -> Predictor:
        return OnnxPredictor(folder / MODEL, plan)


class OnnxPredictor:
    """One session; ONNX Runtime lets several threads call it at once."""

    own_tensors = False

    def __init__(self, path: Path, plan: Plan) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = plan.threads or machine.cores().count
        options.log_severity_level = 3
        self._session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = self._session.get_inputs()
        self._names = [entry.name for entry in inputs]
        self.shapes = [tuple(size if isinstance(size, int) else None for size in entry.shape) for entry in inputs]

    def __call__(self, inputs: Flat) -> Flat:
        outputs: Flat = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        return outputs


def _prepare(source: Path, target: Path) -> None:
    """Simplify and name shapes; inference of symbolic ones does not know every graph, and helps where it does."""
    try:
        quant_pre_process(str(source), str(target), auto_merge=True)
    except Exception:
        quant_pre_process(str(source), str(target), skip_symbolic_shape=True)


def _quantise_dynamically(source: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, _quiet():
        prepared = Path(folder) / MODEL
        _prepare(source, prepared)
        quantize_dynamic(str(prepared), str(target), weight_type=QuantType.QInt8, per_channel=True)


def _quantise_statically(source: Path, target: Path, batches: list[Flat]) -> None:
    with tempfile.TemporaryDirectory() as folder, _quiet():
        prepared = Path(folder) / MODEL
        _prepare(source, prepared)
        quantize_static(
            str(prepared),
            str(target),
            _Batches(source, batches),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            reduce_range=not machine.has_vnni(),
        )


class _Batches(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, source: Path, batches: list[Flat]) -> None:
        session = ort.InferenceSession(str(source), providers=["CPUExecutionProvider"])
        names = [entry.name for entry in session.get_inputs()]
        self._feeds: Iterator[dict[str, Any]] = iter(
            [dict(zip(names, map(np.asarray, batch), strict=True)) for batch in batches]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


class _quiet:  # noqa: N801
    """Quantising tells at length what a user cannot act on."""

    def __enter__(self) -> None:
        self._before = logging.root.manager.disable
        logging.disable(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        logging.disable(self._before)
