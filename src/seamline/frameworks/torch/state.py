"""Torch state as files that load without pickle: tensors in safetensors, everything else in JSON."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from seamline.core.errors import CheckpointError
from seamline.core.framework import State

MODEL, TRAINING, REST = "model.safetensors", "training.safetensors", "state.json"


def write(state: State, folder: Path) -> None:
    """The model's tensors under their own names, so that any tool can read them; the rest beside them."""
    model = {name: value for name, value in state["model"].items() if isinstance(value, torch.Tensor)}
    distinct, aliases = _without_aliases(model)
    others = {name: value for name, value in state["model"].items() if name not in model}
    tensors: dict[str, torch.Tensor] = {}
    rest = _pack({**state, "model": others, "aliases": aliases}, tensors, "")
    save_file(distinct, folder / MODEL)
    save_file(_apart(tensors), folder / TRAINING)
    (folder / REST).write_text(json.dumps(rest))


def read(folder: Path) -> State:
    rest = _unpack(json.loads((folder / REST).read_text()), load_file(folder / TRAINING))
    model = load_file(folder / MODEL)
    model.update({name: model[first] for name, first in rest.pop("aliases").items()})
    return {**rest, "model": {**model, **rest["model"]}}


def _without_aliases(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tied weights are stored once, and remembered as tied."""
    distinct: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    first_name: dict[Any, str] = {}
    for name, tensor in tensors.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        first = first_name.setdefault(key, name)
        if first == name:
            distinct[name] = tensor.contiguous()
        else:
            aliases[name] = first
    return distinct, aliases


def _apart(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors that share no memory, as the format wants it; only those that do are copied."""
    apart: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone(memory_format=torch.contiguous_format) if memory in taken else tensor.contiguous()
        taken.add(memory)
    return apart


def _pack(value: Any, tensors: dict[str, torch.Tensor], path: str) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.Tensor):
        tensors[path] = value.detach()
        return {"tensor": path}
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, Counter) else "dict"
        return {kind: [[key, _pack(each, tensors, f"{path}/{key}")] for key, each in value.items()]}
    if isinstance(value, (list, tuple)):
        items = [_pack(each, tensors, f"{path}/{index}") for index, each in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if hasattr(value, "item"):
        return value.item()
    raise CheckpointError(
        f"{path.strip('/')} is of type {type(value).__name__}, which cannot be saved without pickle; "
        "leave it out of state_dict()"
    )


def _unpack(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_unpack(each, tensors) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_unpack(each, tensors) for each in content)
    pairs = {key: _unpack(each, tensors) for key, each in content}
    return Counter(pairs) if kind == "counter" else pairs
