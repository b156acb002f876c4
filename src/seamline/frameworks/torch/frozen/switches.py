"""What the code of a module reads from the module besides tensors and submodules: numbers, switches, settings."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import nn

_LIBRARIES = ("torch.", "lightning.", "pytorch_lightning.")
_PLAIN = (bool, int, float, str, type(None))


def switches(module: nn.Module) -> list[Any]:
    """The present values of the attributes that the module's own code mentions, a level deep; not its mode."""
    kind: Any = type(module)
    attributes, mentioned = vars(module), _mentioned(kind)
    return [(name, _settled(attributes[name])) for name in mentioned if name in attributes]


def _settled(value: Any) -> Any:
    """Something to compare with later."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return [part if isinstance(part, _PLAIN) else id(part) for part in value]
    if isinstance(value, (nn.Module, torch.Tensor)) or callable(value):
        return id(value)
    held = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if held is None:
        return id(value)
    return [(name, part if isinstance(part, _PLAIN) else id(part)) for name, part in held.items()]


@functools.cache
def _mentioned(kind: Any) -> tuple[str, ...]:
    """Every name that the user's code in a class refers to."""
    theirs = [each for each in kind.__mro__ if not f"{each.__module__}.".startswith(_LIBRARIES) and each is not object]
    functions = (value for each in theirs for value in vars(each).values() if isinstance(value, FunctionType))
    names = {name for function in functions for name in _names(function.__code__)}
    return tuple(sorted(names - {"training"}))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
