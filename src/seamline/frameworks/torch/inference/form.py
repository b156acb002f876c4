"""The structure of a call: between what a user passes to a model and the flat tensors that runtimes know."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from seamline.core import tree


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor in a structure."""

    number: int


@dataclass(frozen=True)
class Form:
    """A structure with slots for tensors; everything else in it is fixed."""

    structure: Any

    @classmethod
    def of(cls, value: Any) -> Form:
        numbers = iter(range(10**9))
        return cls(tree.map_leaves(lambda leaf: Slot(next(numbers)) if _is_array(leaf) else leaf, value))

    @cached_property
    def single(self) -> bool:
        """Whether it is one tensor and nothing else."""
        return isinstance(self.structure, Slot)

    def tensors(self, value: Any) -> list[Any]:
        """The tensors of a value of this structure, in order."""
        found: list[Any] = []
        _walk(self.structure, value, found, "the call")
        return found

    def rebuild(self, tensors: Sequence[Any]) -> Any:
        if self.single:
            return tensors[0]
        return tree.map_leaves(lambda leaf: tensors[leaf.number] if isinstance(leaf, Slot) else leaf, self.structure)

    @property
    def has_values(self) -> bool:
        """Whether anything in it is neither a tensor nor nothing at all."""
        return any(not isinstance(leaf, Slot) and leaf is not None for leaf in tree.leaves(self.structure))

    def names(self) -> list[str]:
        """A name for each tensor, such as ``x`` or ``x_mask``."""
        found = [path for path, leaf in tree.paths(self.structure) if isinstance(leaf, Slot)]
        cleaned = ["_".join(filter(None, "".join(c if c.isalnum() else " " for c in path).split())) for path in found]
        return [f"in_{name}" for name in cleaned]


def _walk(expected: Any, value: Any, found: list[Any], where: str) -> None:
    if isinstance(expected, Slot):
        if not _is_array(value):
            raise TypeError(f"{where} holds {type(value).__name__} where the model was optimised for a tensor")
        found.append(value)
    elif isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            raise TypeError(f"{where} should be a dict of {', '.join(map(repr, expected))}")
        for key, part in expected.items():
            _walk(part, value[key], found, f"{where}[{key!r}]")
    elif isinstance(expected, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(expected):
            raise TypeError(f"{where} should have {len(expected)} parts, as when the model was optimised")
        for index, part in enumerate(expected):
            _walk(part, value[index], found, f"{where}[{index}]")
    elif value is not expected and value != expected:
        raise ValueError(f"{where} was fixed to {expected!r} when the model was optimised, but is {value!r} now")


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) or (hasattr(leaf, "__array__") and hasattr(leaf, "dtype"))


@dataclass(frozen=True)
class CallForm:
    """How a model is called, and how it answers."""

    parameters: tuple[str, ...]
    inputs: Form
    outputs: Form

    @classmethod
    def of(cls, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallForm:
        call = bound(model, args, kwargs)
        with torch.no_grad():
            answer = model(*call[0], **call[1])
        names = tuple(inspect.signature(model.forward).parameters)
        return cls(names, Form.of(call), Form.of(answer))

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call, whether its arguments came by position or by name."""
        if not kwargs and len(args) == self._plain_arguments and all(type(arg) is torch.Tensor for arg in args):
            return list(args)
        if kwargs:
            args, kwargs = self._by_position(args, kwargs)
        return self.inputs.tensors((args, kwargs))

    @cached_property
    def _plain_arguments(self) -> int | None:
        """How many tensors it takes by position, if it takes nothing else."""
        args, kwargs = self.inputs.structure
        return len(args) if not kwargs and all(isinstance(arg, Slot) for arg in args) else None

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        expected = len(self.inputs.structure[0])
        left = dict(kwargs)
        more = []
        for name in self.parameters[len(args) : expected]:
            if name not in left:
                raise TypeError(f"argument {name!r} is missing")
            more.append(left.pop(name))
        return (*args, *more), left


def bound(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call with as many arguments by position as possible."""
    signature = inspect.signature(model.forward).bind(*args, **kwargs)
    return signature.args, signature.kwargs


class FlatModel(nn.Module):
    """A model as a function of flat tensors."""

    def __init__(self, model: nn.Module, form: CallForm) -> None:
        super().__init__()
        self.model = model
        self.form = form

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self.form.inputs.rebuild(tensors)
        return tuple(self.form.outputs.tensors(self.model(*args, **kwargs)))


def rows_of(tensors: Sequence[Any]) -> int:
    return next((len(tensor) for tensor in tensors if tensor.ndim), 1)


def in_rows(tensors: Sequence[Any]) -> bool:
    """Whether the first dimension of all of them is that of the rows, so that a call can be cut.

    A state of (layers, rows, features) beside (rows, time, features) cannot.
    """
    return len({len(tensor) for tensor in tensors if tensor.ndim}) == 1


def in_batches(tensors: Sequence[Any], size: int) -> Iterator[list[Any]]:
    if not in_rows(tensors):
        yield list(tensors)
        return
    for first in range(0, rows_of(tensors), size):
        yield [tensor[first : first + size] if tensor.ndim else tensor for tensor in tensors]


def to_json(structure: Any) -> Any:
    """A structure as plain JSON; named tuples become tuples."""
    if isinstance(structure, Slot):
        return {"tensor": structure.number}
    if isinstance(structure, dict):
        return {"dict": [[key, to_json(value)] for key, value in structure.items()]}
    if isinstance(structure, (list, tuple)):
        return {"list" if isinstance(structure, list) else "tuple": [to_json(value) for value in structure]}
    return {"value": structure}


def from_json(saved: Any) -> Any:
    ((kind, content),) = saved.items()
    if kind == "tensor":
        return Slot(content)
    if kind == "dict":
        return {key: from_json(value) for key, value in content}
    if kind in ("list", "tuple"):
        values = [from_json(value) for value in content]
        return values if kind == "list" else tuple(values)
    return content
