"""Calls of a model from whatever data the user has."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from seamline.core import tree

_TARGETS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True, slots=True)
class Call:
    """One call with the answers that are known for it."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Any = None


def calls(model: nn.Module, data: Any) -> Iterator[Call]:
    """Each batch of a loader as a call; anything else is one call."""
    if isinstance(data, Dataset):
        data = DataLoader(data, batch_size=32)
    if isinstance(data, DataLoader) or (hasattr(data, "__next__") and not isinstance(data, torch.Tensor)):
        for item in data:
            yield as_call(model, item)
    else:
        yield as_call(model, data)


def as_call(model: nn.Module, item: Any) -> Call:
    """What of an item are arguments, judged by what the model's ``forward`` takes, and what are targets."""
    item = tree.map_leaves(_as_tensor, item)
    least, most, names = _takes(model)
    if isinstance(item, dict):
        kwargs = {key: value for key, value in item.items() if _takes_by_name(key, names)}
        targets = next((item[key] for key in _TARGETS if key in item and key not in kwargs), None)
        return Call((), kwargs, targets) if kwargs and _enough(model, kwargs) else Call((item,), {})
    if not isinstance(item, (tuple, list)):
        return Call((item,), {})
    if len(item) == 2 and isinstance(item[0], (tuple, list)) and least != 1:
        return Call(tuple(item[0]), {}, item[1])
    if len(item) == 2 and _is_call_by_name(model, item[0]):
        return Call((), dict(item[0]), item[1])
    if len(item) > max(least, 1):
        given = max(least, 1) if len(item) - 1 <= max(least, 1) or most < len(item) else len(item)
        return Call(tuple(item[:given]), {}, item[given] if given < len(item) else None)
    return Call(tuple(item), {})


def sample_call(model: nn.Module, sample: Any) -> Call:
    """An input sample is the arguments alone: a tensor, a tuple of arguments, or a dict of them."""
    sample = tree.map_leaves(_as_tensor, sample)
    if _is_call_by_name(model, sample):
        return Call((), sample)
    if isinstance(sample, (tuple, list)):
        return Call(tuple(sample), {})
    return Call((sample,), {})


def _is_call_by_name(model: nn.Module, item: Any) -> bool:
    """Whether it is a dict of arguments, and not one argument that is a dict."""
    names = _takes(model)[2]
    return isinstance(item, dict) and all(key in names or "**" in names for key in item) and _enough(model, item)


def _takes_by_name(key: Any, names: tuple[str, ...]) -> bool:
    return key in names or ("**" in names and key not in _TARGETS)


def _enough(model: nn.Module, kwargs: dict[str, Any]) -> bool:
    """Whether all arguments are there that ``forward`` cannot do without."""
    parameters = inspect.signature(model.forward).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return all(name in kwargs for name in needed)


def _takes(model: nn.Module) -> tuple[int, int, tuple[str, ...]]:
    """How many arguments ``forward`` needs, how many it can take, and their names."""
    parameters = inspect.signature(model.forward).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty for p in positional)
    many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    names = tuple("**" if p.kind is p.VAR_KEYWORD else p.name for p in parameters)
    return least, 10**6 if many else len(positional), names


def _as_tensor(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) or not (hasattr(leaf, "__array__") and hasattr(leaf, "dtype")):
        return leaf
    tensor = torch.as_tensor(leaf)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
