"""Accelerated models on disk: the runtime's own files and a card in JSON, and nothing that needs pickle."""

from __future__ import annotations

import os
import platform
import warnings
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from torch import nn

from seamline.core import checkpoint, machine, registry
from seamline.core.errors import CheckpointError, ExportError
from seamline.core.files import link_or_copy
from seamline.core.runtime import Plan
from seamline.frameworks.torch.inference.form import CallForm, Form, from_json, to_json
from seamline.nano.torch.accelerated import AcceleratedModel

KIND = "accelerated model"
_FAST = ("avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "avx2")


def save(model: AcceleratedModel, path: str | os.PathLike[str]) -> None:
    target = Path(path).absolute()
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise CheckpointError(f"{target} exists already; choose another path or remove it")
    if target.exists():
        target.rmdir()
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
        "shapes": model.shapes,
        "measured": model.facts,
        "machine": {"processor": platform.machine(), "isa": _isa()},
        "versions": {name: found for name in ("torch", "onnxruntime", "openvino") if (found := _version(name))},
    }

    def fill(folder: Path) -> None:
        for file in files:
            link_or_copy(file, folder / file.name)

    checkpoint.write_folder(target, fill, card=card)


def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> AcceleratedModel:
    folder = Path(path).absolute()
    card = checkpoint.read_card(folder)
    if card.get("kind") != KIND:
        raise CheckpointError(f"{folder} holds a {card.get('kind')}, not an accelerated model")
    try:
        plan = Plan(**card["plan"])
        form = CallForm(tuple(card["parameters"]), Form(from_json(card["inputs"])), Form(from_json(card["outputs"])))
        shapes = [tuple(shape) for shape in card["shapes"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"the card of {folder} was changed and makes no sense any more: {error!r}") from error
    if plan.runtime not in registry.entries("runtimes") or len(form.inputs.names()) != len(shapes):
        raise CheckpointError(f"the card of {folder} was changed and makes no sense any more")
    missing = set(card["machine"]["isa"]) - set(_isa())
    if missing:
        warnings.warn(
            f"{folder} was measured on a machine with {', '.join(sorted(missing))}, which this one lacks: "
            "it may be slow here, so optimise again",
            stacklevel=2,
        )
    return AcceleratedModel(folder, plan, form, shapes, model, facts=card["measured"])


def _isa() -> list[str]:
    return [flag for flag in _FAST if flag in machine.cpu_flags()]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
