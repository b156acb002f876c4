"""A torch model with everything that runtimes and measurements need of it; it travels to other processes."""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.core.errors import ExportError
from seamline.core.runtime import Flat, Predictor
from seamline.frameworks.torch.inference.form import CallForm, FlatModel, in_rows, rows_of
from seamline.frameworks.torch.inference.samples import Call, calls, sample_call

ONNX, PROGRAM, SHAPES, PROBLEM = "model.onnx", "program.pt2", "shapes.json", "export-problem.txt"
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class TorchPortable:
    """The model, how it is called, and a folder with its exported forms."""

    model: nn.Module
    form: CallForm
    folder: Path
    sample: list[torch.Tensor] = field(repr=False)
    varying: tuple[tuple[int, ...], ...] = ()
    """For each input, dimensions beyond the usual whose size is another in other calls of the user's data."""

    @classmethod
    def of(cls, model: nn.Module, call: Call, folder: Path, rows: int | None = None) -> TorchPortable:
        """``rows`` is how many rows the measured call shall have."""
        form = CallForm.of(model, call.args, call.kwargs)
        tensors = form.flatten(call.args, call.kwargs)
        if form.outputs.has_values and in_rows(tensors):
            _check_values(model, form, tensors)
        cut = rows is not None and in_rows(tensors)
        return cls(model, form, folder, [_rows(tensor, rows) for tensor in tensors] if cut and rows else tensors)

    @property
    def flat(self) -> FlatModel:
        return FlatModel(self.model, self.form)

    @property
    def half(self) -> bool:
        """Whether the original computes in half precision, at least in part."""
        tensors = [*self.model.parameters(), *self.sample]
        return any(tensor.dtype in HALF for tensor in tensors) or bool(set(self.form.dtypes) & {"bfloat16", "float16"})

    @property
    def exact(self) -> float:
        """How far the answers of a plan in full precision may be from the original's before they are called wrong."""
        return 0.03 if self.half else 1e-3

    # Exported forms

    def export(self) -> None:
        """Write ONNX and torch's own program, or a note on why that cannot be."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                logging.disable(logging.WARNING)
                self._export()
        except Exception as error:
            first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            (self.folder / PROBLEM).write_text(f"{type(error).__name__}: {first}")
        finally:
            logging.disable(logging.NOTSET)

    def _export(self) -> None:
        model = FlatModel(copy.deepcopy(self.model).cpu(), self.form)
        sample = [tensor.cpu() for tensor in self.sample]
        # A dimension of size 1 would be taken for a constant.
        doubled = tuple(torch.cat([t, t]) if t.ndim and len(t) == 1 else t for t in sample)
        varying = self.varying or [()] * len(doubled)
        free = [sorted({*free_dimensions(t), *dims}) for t, dims in zip(doubled, varying, strict=True)]
        program = _exported(model, doubled, free)
        shapes = _shapes_of(program)
        if any(shape and shape[0] is not None for shape in shapes):
            # The number of rows could not be left open, so it is the one that was asked for.
            program = _exported(model, tuple(sample), [[] for _ in sample])
            shapes = _shapes_of(program)
        torch.export.save(program, self.folder / PROGRAM)
        (self.folder / SHAPES).write_text(json.dumps(shapes))
        if self.half:  # the operators of other runtimes are there for fp32, and their inputs arrive in it
            free = [[d for d, size in enumerate(shape) if size is None] for shape in shapes]
            example = doubled if any(free) else tuple(sample)
            program = _exported(model.float(), tuple(map(_in_full, example)), free)
        converted = torch.onnx.export(program, dynamo=True, verbose=False, input_names=self.form.inputs.names())
        assert converted is not None
        converted.save(self.folder / ONNX)

    @property
    def shapes(self) -> list[tuple[int | None, ...]]:
        """The input shapes that the exported forms take; ``None`` is any size."""
        saved = self.folder / SHAPES
        if saved.exists():
            return [tuple(shape) for shape in json.loads(saved.read_text())]
        return [(None,) * tensor.ndim for tensor in self.sample]

    def onnx(self) -> Path:
        if (self.folder / ONNX).exists():
            return self.folder / ONNX
        problem = self.folder / PROBLEM
        why = problem.read_text() if problem.exists() else "the export did not end"
        raise ExportError(f"the model cannot be exported to ONNX: {why}")

    def program(self) -> Path | None:
        return self.folder / PROGRAM if (self.folder / PROGRAM).exists() else None

    # Calling

    def original(self) -> Predictor:
        """The model as the user calls it."""
        return _Original(self.flat)

    def caller(self, predictor: Predictor) -> Callable[[], Any]:
        """The sample's call as a user makes it, ended when its answer is there."""
        args, kwargs = self.form.inputs.rebuild(self.sample)

        def call_model() -> Any:
            return self.model(*args, **kwargs)

        def call_plan() -> Any:
            return self.form.answer(call_with_tensors(predictor, self.form.flatten(args, kwargs)))

        call = call_model if isinstance(predictor, _Original) else call_plan

        def call_and_wait() -> None:
            call()
            torch.cuda.synchronize()

        return call_and_wait if torch.cuda.is_available() else call

    def answer(self, predictor: Predictor, tensors: Flat) -> list[Any]:
        """The answer as arrays, to compare with others."""
        return [as_array(tensor) for tensor in self.form.in_type(call_with_tensors(predictor, tensors))]

    def score(self, predictor: Predictor, validation: list[tuple[Flat, Any]], metric: Callable[..., Any]) -> float:
        """The metric's mean over batches, each weighing as many rows as it has."""
        total, rows = 0.0, 0
        with torch.no_grad():
            for tensors, targets in validation:
                outputs = self.form.answer(call_with_tensors(predictor, tensors))
                total += float(metric(outputs, targets)) * rows_of(tensors)
                rows += rows_of(tensors)
        return total / rows


def call_with_tensors(predictor: Predictor, tensors: Flat) -> list[torch.Tensor]:
    """Call any predictor with tensors; runtimes of their own get the same memory as numpy arrays."""
    if predictor.own_tensors:
        return list(predictor(tensors))
    if 0 in tensors[0].shape and in_rows(tensors) and rows_of(tensors) == 0:
        # Kernels of other runtimes can end the process for no rows: they get one, and it is taken out of the answer.
        one = [tensor.new_zeros((1, *tensor.shape[1:])) if tensor.ndim else tensor for tensor in tensors]
        return [output[:0] if output.ndim else output for output in call_with_tensors(predictor, one)]
    outputs = [torch.from_numpy(array) for array in predictor([as_array(tensor) for tensor in tensors])]
    home = tensors[0].device
    return outputs if home.type == "cpu" else [output.to(home) for output in outputs]


def as_array(tensor: torch.Tensor) -> Any:
    if tensor.requires_grad:
        tensor = tensor.detach()
    return _in_full(tensor).cpu().contiguous().numpy()


def _in_full(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in HALF else tensor


class _Original:
    own_tensors = True

    def __init__(self, model: nn.Module) -> None:
        self._model = model

    def __call__(self, inputs: Flat) -> Flat:
        outputs: Flat = self._model(*inputs)
        return [tensor.detach() for tensor in outputs]


def first_call(model: nn.Module, input_sample: Any, *data: Any) -> Call:
    """A call to measure and export with."""
    if input_sample is not None:
        return sample_call(model, input_sample)
    for source in data:
        if source is not None:
            return next(calls(model, source))
    raise ValueError("nothing to call the model with; give training_data=, validation_data= or input_sample=")


def _check_values(model: nn.Module, form: CallForm, tensors: list[torch.Tensor]) -> None:
    """Numbers and names in an answer are taken over as they are, so they must not depend on the rows."""
    other = rows_of(tensors) + 1
    try:
        with torch.no_grad():
            FlatModel(model, form)(*(_rows(tensor, other) for tensor in tensors))
    except ValueError as error:
        raise ValueError(f"the model answers with more than tensors, and that changes: {error}") from error


def _rows(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    if tensor.ndim == 0 or len(tensor) == rows:
        return tensor
    times = -(-rows // len(tensor))
    return torch.cat([tensor] * times)[:rows]


def free_dimensions(tensor: torch.Tensor) -> list[int]:
    """Rows, and the length of sequences: tokens in two dimensions, features over time in three."""
    if tensor.ndim == 0:
        return []
    tokens = tensor.ndim == 2 and not tensor.is_floating_point()
    return [0, 1] if (tokens or tensor.ndim == 3) and tensor.shape[1] > 1 else [0]


def varying_dimensions(sample: Flat, others: list[Flat]) -> tuple[tuple[int, ...], ...]:
    """Of each input, the dimensions behind the second that have another size in other calls: lengths, image sizes."""
    return tuple(
        tuple(d for d in range(2, tensor.ndim) if any(other[number].shape[d] != tensor.shape[d] for other in others))
        for number, tensor in enumerate(sample)
    )


def _exported(model: nn.Module, example: tuple[torch.Tensor, ...], free: list[list[int]]) -> Any:
    shapes = tuple(dict.fromkeys(dims, torch.export.Dim.AUTO) for dims in free)
    with torch.no_grad():
        return torch.export.export(model, example, dynamic_shapes=(shapes,), strict=False)


def _shapes_of(program: Any) -> list[tuple[int | None, ...]]:
    """What became of the dimensions that were to be free."""
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    nodes = [node for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    return [tuple(size if isinstance(size, int) else None for size in node.meta["val"].shape) for node in nodes]


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode within, and as it was afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
