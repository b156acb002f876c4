"""A model that exists as an ONNX file alone; its original is a plain ONNX Runtime session."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seamline.core import registry
from seamline.core.files import Scratch
from seamline.core.runtime import Calibration, Flat, Plan, Predictor


@dataclass(frozen=True)
class OnnxPortable:
    """An ONNX file with the inputs of one call."""

    path: Path
    sample: list[Any] = field(repr=False)
    flat: None = None
    exact: float = 1e-3
    """How far the answers of a plan in full precision may be from the original's before they are called wrong."""

    def export(self) -> None:
        """It is what it should become."""

    def onnx(self) -> Path:
        return self.path

    def program(self) -> Path | None:
        return None

    def original(self) -> Predictor:
        plain = Plan("onnxruntime")
        runtime, scratch = registry.runtime("onnxruntime"), Scratch()
        runtime.build(self, plain, scratch.path, Calibration([]))
        return runtime.load(scratch.path, plain)

    def caller(self, predictor: Predictor) -> Callable[[], Any]:
        return lambda: predictor(self.sample)

    def answer(self, predictor: Predictor, arrays: Flat) -> list[Any]:
        return [np.asarray(array) for array in predictor(arrays)]

    def score(self, predictor: Predictor, validation: list[tuple[Flat, Any]], metric: Callable[..., Any]) -> float:
        scores = [(float(metric(self.answer(predictor, arrays), y)), len(arrays[0])) for arrays, y in validation]
        return sum(score * rows for score, rows in scores) / sum(rows for _, rows in scores)
