"""``seamline optimize``: the table of plans for a model in a file or in a module."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import click

SHAPE = re.compile(r"^(?P<sizes>\d+(?:[x,]\d+)*)(?::(?P<kind>float|int))?$")


def optimize_command(target: str, shapes: tuple[str, ...], includes: tuple[str, ...], save: str | None) -> None:
    """Find the fastest way to serve what ``target`` names, and print every plan that was tried."""
    if not shapes:
        raise click.UsageError("give the shape of each input: --input-shape 1x3x224x224 (or 1x128:int for tokens)")
    sample = [_array(shape) for shape in shapes]
    if save is not None:
        _check_target(target, Path(save))
    report = (
        _of_file(Path(target), sample, includes) if target.endswith(".onnx") else _of_module(target, sample, includes)
    )
    click.echo(str(report))
    chosen = report.best_trial()
    click.echo(f"fastest within 5 % of the original's answers: {chosen.name}")
    if save is not None:
        _save(report, chosen.name, save)


def _of_module(target: str, sample: list[Any], includes: tuple[str, ...]) -> Any:
    import torch

    from seamline.nano.torch import InferenceOptimizer

    tensors = tuple(torch.from_numpy(array) for array in sample)
    return InferenceOptimizer().optimize(_made(target), input_sample=tensors, includes=list(includes) or None)


def _of_file(path: Path, sample: list[Any], includes: tuple[str, ...]) -> Any:
    from seamline.core.files import Scratch
    from seamline.nano.inference.measuring import Experiment
    from seamline.nano.inference.onnx_portable import OnnxPortable
    from seamline.nano.inference.report import Report
    from seamline.nano.inference.search import Search

    if not path.exists():
        raise click.UsageError(f"there is no file {path}")
    home = Scratch()
    experiment = Experiment(OnnxPortable(path.absolute(), sample), [sample], [])
    trials = Search(experiment, home.path, includes=list(includes) or None).run()
    measured = f"one call after the other with inputs of {', '.join(str(array.shape) for array in sample)}"
    return Report(trials, direction="max", load=lambda trial: trial.folder, folder=home, measured=measured)


def _check_target(target: str, path: Path) -> None:
    """What cannot be saved is refused before the search and not after it."""
    if target.endswith(".onnx"):
        raise click.UsageError(
            "--save keeps models that are named as package.module:make_model; of an .onnx file only the table is shown"
        )
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise click.UsageError(f"{path} exists already; choose another path for --save or remove it")


def _save(report: Any, name: str, path: str) -> None:
    from seamline.nano.torch import InferenceOptimizer

    InferenceOptimizer.save(report.get_model(name), path)
    what = "the weights of the original, which nothing beats," if name == "original" else name
    click.echo(f"saved {what} to {path}")


def _made(target: str) -> Any:
    """``package.module:make_model``, called without arguments if it is not a model already."""
    from torch import nn

    module_name, _, attribute = target.partition(":")
    if not attribute:
        raise click.UsageError(f"{target!r} is neither an .onnx file nor package.module:make_model")
    sys.path.insert(0, str(Path.cwd()))
    try:
        made = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise click.UsageError(f"cannot find {target!r}: {error}") from error
    model = made if isinstance(made, nn.Module) else made()
    if not isinstance(model, nn.Module):
        raise click.UsageError(f"{target!r} gave {type(model).__name__}, not a torch.nn.Module")
    return model.eval()


def _array(text: str) -> Any:
    import numpy as np

    found = SHAPE.match(text)
    if found is None:
        raise click.UsageError(f"{text!r} is no shape; write 1x3x224x224, or 1x128:int for whole numbers")
    sizes = [int(size) for size in re.split("[x,]", found["sizes"])]
    if found["kind"] == "int":
        return np.zeros(sizes, np.int64)
    return np.random.default_rng(0).standard_normal(sizes, np.float32)
