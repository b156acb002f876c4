"""Accelerated models on disk: the runtime's own files and a card in JSON, and nothing that needs pickle."""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, get_args

import torch
from safetensors.torch import load_model, save_model
from torch import nn

from seamline.core import checkpoint, machine, registry
from seamline.core.errors import CheckpointError, ExportError, SeamlineError
from seamline.core.files import link_or_copy
from seamline.core.runtime import Goal, Plan, Precision
from seamline.frameworks.torch.inference.form import CallForm, Form
from seamline.frameworks.torch.inference.structure import from_json, to_json
from seamline.nano.torch.accelerated import AcceleratedModel

KIND, ORIGINAL = "accelerated model", "original model"
WEIGHTS = "model.safetensors"
_PACKAGES = {"torch": "torch", "cuda": "torch", "onnxruntime": "onnxruntime", "openvino": "openvino"}
"""Whose version counts for which runtime."""
_FAST = ("avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "avx2")


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    target = Path(path).absolute()
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists already; choose another path or remove it")
    if target.exists():
        target.rmdir()
    if not isinstance(model, AcceleratedModel):
        checkpoint.write_folder(target, partial(_write_weights, model), card={"kind": ORIGINAL})
        return
    files = [file for file in model.folder.iterdir() if file.is_file() and file.name != checkpoint.CARD]
    if not files:
        raise ExportError(
            f"a model served by {model.plan} that cannot be exported has no form without pickle; "
            "save the original's state_dict and optimise again"
        )
    card = {
        "kind": KIND,
        "framework": "torch",
        "plan": asdict(model.plan),
        "parameters": list(model.form.parameters),
        "inputs": to_json(model.form.inputs.structure),
        "outputs": to_json(model.form.outputs.structure),
        "defaults": model.form.defaults,
        "dtypes": list(model.form.dtypes),
        "shapes": model.shapes,
        "measured": model.facts,
        "machine": {"processor": platform.machine(), "isa": _isa()},
        "versions": {name: found for name in sorted(set(_PACKAGES.values())) if (found := _version(name))},
    }

    def fill(folder: Path) -> None:
        for file in files:
            link_or_copy(file, folder / file.name)

    checkpoint.write_folder(target, fill, card=card)


def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> Any:
    folder = Path(path).absolute()
    card = checkpoint.read_card(folder)
    if card.get("kind") == ORIGINAL:
        return _original(folder, model)
    if card.get("kind") != KIND:
        raise CheckpointError(f"{folder} holds a {card.get('kind')}, not an accelerated model")
    try:
        plan = Plan(**card["plan"])
        form = _form(card)
        shapes = [tuple(shape) for shape in card["shapes"]]
        missing, measured = set(card["machine"]["isa"]) - set(_isa()), dict(card["measured"])
        versions = {name: str(found) for name, found in card["versions"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the card of {folder} was changed and makes no sense any more: {error!r}") from error
    sensible = plan.precision in get_args(Precision) and plan.goal in get_args(Goal)
    sensible &= plan.threads is None or (isinstance(plan.threads, int) and plan.threads > 0)
    sensible &= plan.runtime in registry.entries("runtimes") and len(form.inputs.names()) == len(shapes)
    if not sensible:
        raise CheckpointError(f"the card of {folder} was changed and makes no sense any more")
    if missing:
        warnings.warn(
            f"{folder} was measured on a machine with {', '.join(sorted(missing))}, which this one lacks: "
            "it may be slow here, so optimise again",
            stacklevel=2,
        )
    _compare_versions(folder, _PACKAGES[plan.runtime], versions)
    loaded = _served(folder, plan, form, shapes, model, measured)
    taken = getattr(loaded._predictor, "shapes", shapes)
    if len(taken) != len(shapes) or not all(map(_compatible, taken, shapes)):
        raise CheckpointError(f"the card of {folder} was changed: it has inputs of {shapes}, its model takes {taken}")
    return loaded


def _compare_versions(folder: Path, package: str, saved: dict[str, str]) -> None:
    """Say where the runtime is of another major version than the one that was measured."""
    here = _version(package)
    if here and package in saved and here.partition(".")[0] != saved[package].partition(".")[0]:
        warnings.warn(
            f"{folder} was saved with {package} {saved[package]} and this is {here}: "
            "speed and answers may be others, so optimise again",
            stacklevel=3,
        )


def _form(card: dict[str, Any]) -> CallForm:
    inputs, outputs = Form(from_json(card["inputs"])), Form(from_json(card["outputs"]))
    dtypes = tuple(card.get("dtypes", ()))
    if any(not isinstance(getattr(torch, name, None), torch.dtype) for name in dtypes):
        raise ValueError(f"dtypes are {dtypes}")
    return CallForm(tuple(card["parameters"]), inputs, outputs, dict(card.get("defaults", {})), dtypes)


def _served(folder: Path, plan: Plan, form: CallForm, shapes: Any, model: Any, facts: Any) -> AcceleratedModel:
    try:
        return AcceleratedModel(folder, plan, form, shapes, model, facts=facts)
    except SeamlineError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise CheckpointError(f"{plan.runtime} cannot load {folder}: {type(error).__name__}: {first}") from error


def _write_weights(model: nn.Module, folder: Path) -> None:
    save_model(model, str(folder / WEIGHTS))


def _original(folder: Path, model: nn.Module | None) -> nn.Module:
    if model is None:
        raise CheckpointError(
            f"{folder} holds the weights of an original, as nothing was faster; give it with load(..., model=...)"
        )
    try:
        load_model(model, folder / WEIGHTS)
    except RuntimeError as error:
        raise CheckpointError(f"{folder} holds the weights of another model: {error}") from error
    return model.eval()


def _compatible(one: Sequence[int | None], other: Sequence[int | None]) -> bool:
    return len(one) == len(other) and all(a is None or b is None or a == b for a, b in zip(one, other, strict=True))


def _isa() -> list[str]:
    return [flag for flag in _FAST if flag in machine.cpu_flags()]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
