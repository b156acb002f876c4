"""The structure of a call: between what a user passes to a model and the flat tensors that runtimes know."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import nn

from seamline.frameworks.torch.inference.structure import Record, Slot, is_record, map_leaves, map_slots, paths


@dataclass(frozen=True)
class Form:
    """A structure with slots for tensors; everything else in it is fixed."""

    structure: Any

    @classmethod
    def of(cls, value: Any) -> Form:
        numbers = iter(range(10**9))
        return cls(map_leaves(lambda leaf: Slot(next(numbers)) if _is_array(leaf) else leaf, value))

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
        return map_slots(lambda slot: tensors[slot.number], self.structure)

    @property
    def has_values(self) -> bool:
        """Whether anything in it is neither a tensor nor nothing at all."""
        return any(not isinstance(leaf, Slot) for _, leaf in paths(self.structure))

    def names(self) -> list[str]:
        """A name for each tensor, such as ``x`` or ``x_mask``."""
        found = [path for path, leaf in paths(self.structure) if isinstance(leaf, Slot)]
        cleaned = ["_".join(filter(None, "".join(c if c.isalnum() else " " for c in path).split())) for path in found]
        return [f"in_{name}" for name in cleaned]


def _walk(expected: Any, value: Any, found: list[Any], where: str) -> None:
    if isinstance(expected, Slot):
        if not _is_array(value):
            raise TypeError(f"{where} holds {type(value).__name__} where the model was optimised for a tensor")
        found.append(value)
    elif isinstance(expected, Record):
        given = Record.of(value) if is_record(value) else None
        if given is None or given.kind != expected.kind:
            raise TypeError(f"{where} should be a {expected.kind.rpartition(':')[2]}")
        for name, part in expected.parts.items():
            _walk(part, given.parts[name], found, f"{where}.{name}")
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
    """How a model is called, and how it answers.

    ``parameters`` are the names that ``forward`` takes, ``defaults`` those values that are left out of a call and are
    no tensors, ``dtypes`` the types of the answers.
    """

    parameters: tuple[str, ...]
    inputs: Form
    outputs: Form
    defaults: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallForm:
        call = bound(model, args, kwargs)
        with torch.no_grad():
            answer = model(*call[0], **call[1])
        parameters = inspect.signature(model.forward).parameters
        names = tuple(_MARKS.get(parameter.kind, "") + name for name, parameter in parameters.items())
        defaults = {name: p.default for name, p in parameters.items() if isinstance(p.default, _PLAIN)}
        outputs = Form.of(answer)
        dtypes = tuple(_name(tensor.dtype) for tensor in outputs.tensors(answer))
        return cls(names, Form.of(call), outputs, defaults, dtypes)

    def flatten(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The tensors of a call, whether its arguments came by position or by name."""
        if not kwargs and len(args) == self._plain_arguments and all(type(arg) is torch.Tensor for arg in args):
            return list(args)
        return self.inputs.tensors(self._as_expected(args, dict(kwargs)))

    def answer(self, tensors: Sequence[torch.Tensor]) -> Any:
        """What the model answers with these tensors, in the types in which it does."""
        return self.outputs.rebuild(self.in_type(tensors))

    def in_type(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        if all(tensor.dtype is dtype for tensor, dtype in zip(tensors, self._types, strict=False)):
            return tensors
        return [tensor.to(dtype) for tensor, dtype in zip(tensors, self._types, strict=True)]

    @cached_property
    def _types(self) -> tuple[torch.dtype, ...]:
        return tuple(getattr(torch, name) for name in self.dtypes)

    @cached_property
    def _plain_arguments(self) -> int | None:
        """How many tensors it takes by position, if it takes nothing else."""
        args, kwargs = self.inputs.structure
        return len(args) if not kwargs and all(isinstance(arg, Slot) for arg in args) else None

    def _as_expected(self, args: tuple[Any, ...], left: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with those arguments by position and by name that were so when the model was optimised."""
        by_position, by_name = self.inputs.structure
        many = any(name.startswith("*") for name in self.parameters[: len(args)])
        if not many and len(args) <= len(self.parameters):
            left.update(zip(self.parameters[len(by_position) : len(args)], args[len(by_position) :], strict=False))
            args = args[: len(by_position)]
        more = [self._taken(name, left) for name in self.parameters[len(args) : len(by_position)]]
        for name in [name for name in left if name not in by_name]:
            self._check_left_out(name, left.pop(name))
        return (*args, *more), {name: self._taken(name, left) for name in by_name}

    def _taken(self, name: str, given: dict[str, Any]) -> Any:
        if name not in given and name not in self.defaults:
            raise TypeError(f"argument {name!r} is missing")
        return given.pop(name, self.defaults.get(name))

    def _check_left_out(self, name: str, value: Any) -> None:
        """An argument that was not given when the model was optimised may have its default and nothing else."""
        if name not in self.parameters and not any(each.startswith("**") for each in self.parameters):
            raise TypeError(f"the model takes no argument {name!r}; it takes {', '.join(self.parameters)}")
        known = name in self.defaults and not _is_array(value)
        if not known or value != self.defaults[name]:
            default = repr(self.defaults[name]) if name in self.defaults else "left out"
            shown = "a tensor" if _is_array(value) else repr(value)
            raise ValueError(
                f"argument {name!r} was {default} when the model was optimised, but is {shown} now; "
                "optimise with it in the sample"
            )


_PLAIN = (bool, int, float, str, type(None))
_MARKS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


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
