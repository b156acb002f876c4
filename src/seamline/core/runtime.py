"""The protocols of inference: what serves a trained model, and in which form it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Predictor = Callable[..., Any]
"""A model ready to serve: called as the original is called."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to serve a model; its name reads ``onnxruntime-int8``."""

    runtime: str
    precision: Literal["fp32", "bf16", "fp16", "int8"] = "fp32"

    def __str__(self) -> str:
        return f"{self.runtime}-{self.precision}"


class Portable(Protocol):
    """A trained model as runtimes see it: the original, and ONNX on request, exported once."""

    @property
    def original(self) -> Any: ...

    def onnx(self) -> bytes: ...


class Runtime(Protocol):
    """Something that can serve a trained model."""

    name: str

    def plans(self, model: Portable) -> Iterable[Plan]:
        """The ways in which this runtime could serve ``model`` on this machine; none is an answer."""
        ...

    def build(self, model: Portable, plan: Plan) -> Predictor: ...
