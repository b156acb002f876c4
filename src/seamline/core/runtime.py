"""The protocols of inference: what serves a trained model, and in which form it gets there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

Precision = Literal["fp32", "bf16", "fp16", "int8"]
Goal = Literal["latency", "throughput"]
Flat = Sequence[Any]
"""The arrays of one call, or of its answer, in a fixed order and without their structure."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to serve a model; its name reads ``onnxruntime-static-int8`` or ``torch-compile-bf16``."""

    runtime: str
    precision: Precision = "fp32"
    variant: str = ""
    threads: int | None = None
    goal: Goal = "latency"

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.runtime, self.variant, self.precision)))

    def tuned(self, threads: int | None, goal: Goal) -> Plan:
        return replace(self, threads=threads, goal=goal)

    def __str__(self) -> str:
        return self.name


class Predictor(Protocol):
    """A model ready to serve: flat arrays in, flat arrays out.

    ``own_tensors`` says that it takes and gives the framework's tensors; otherwise these are numpy arrays. One that
    knows which ``shapes`` it takes says so by an attribute of this name, with ``None`` for any size.
    """

    own_tensors: bool

    def __call__(self, inputs: Flat) -> Flat: ...


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a runtime may use to choose the ranges of int8, and to watch over what that does to the score.

    ``batches`` are flat numpy inputs of real calls. ``score`` rates a predictor, more being better, where the user gave
    a metric; ``max_drop`` is how much of it may be lost.
    """

    batches: list[Flat]
    score: Callable[[Predictor], float] | None = None
    max_drop: float = 0.01


class Portable(Protocol):
    """A trained model as runtimes see it: the original, and exported forms, each made once."""

    @property
    def flat(self) -> Any:
        """The original as a function of flat tensors of its framework."""
        ...

    def onnx(self) -> Path:
        """The model as ONNX, with a dynamic number of rows; raises ``ExportError`` if there is none."""
        ...

    def program(self) -> Path | None:
        """The model in its framework's own exported form, if it has one."""
        ...


class Runtime(Protocol):
    """Something that can serve a trained model; the files in a folder are all that it needs to do so."""

    name: str

    def plans(self, model: Portable, *, metric_given: bool) -> Iterable[Plan]:
        """The ways in which this runtime could serve ``model`` on this machine; none is an answer."""
        ...

    def build(self, model: Portable, plan: Plan, folder: Path, calibration: Calibration) -> None:
        """Write what ``load`` needs into an empty folder."""
        ...

    def load(self, folder: Path, plan: Plan, original: Any = None) -> Predictor:
        """Make the predictor; ``original`` is the flat original, in processes that have it."""
        ...
