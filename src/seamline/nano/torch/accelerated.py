"""A model that another runtime serves, and that is called as the original is called."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.core import registry
from seamline.core.errors import SeamlineError
from seamline.core.files import Scratch
from seamline.core.runtime import Plan
from seamline.frameworks.torch.inference.form import CallForm, FlatModel
from seamline.frameworks.torch.inference.portable import call_with_tensors


class AcceleratedModel(nn.Module):
    """Tensors in, tensors out; attributes and methods of the original are there, training is not.

    ``plan`` says how it is served. It pickles with its files, so it can go to other processes.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        form: CallForm,
        shapes: list[tuple[int | None, ...]],
        original: nn.Module | None = None,
        keeps: Any = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        flat = FlatModel(original, form) if original is not None else None
        hidden = {
            "plan": plan,
            "form": form,
            "shapes": shapes,
            "folder": folder,
            "facts": facts or {},
            "_original": original,
            "_keeps": keeps,
            "_predictor": registry.runtime(plan.runtime).load(folder, plan, flat),
        }
        self.__dict__.update(hidden)  # not as submodules: the original must not be trained or moved by accident
        super().train(False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tensors = self.form.flatten(args, kwargs)
        try:
            return self.form.answer(call_with_tensors(self._predictor, tensors))
        except Exception as error:
            self._explain(tensors, error)
            raise

    def _explain(self, tensors: list[torch.Tensor], error: Exception) -> None:
        for name, tensor, shape in zip(self.form.inputs.names(), tensors, self.shapes, strict=True):
            fits = tensor.ndim == len(shape) and all(
                want is None or want == have for want, have in zip(shape, tensor.shape, strict=True)
            )
            if not fits:
                shown = tuple("any" if size is None else size for size in shape)
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}, but the model was optimised for {shown}; "
                    "if the original takes both, optimise it with data of both shapes"
                ) from error

    def train(self, mode: bool = True) -> AcceleratedModel:
        if mode:
            raise SeamlineError(
                f"a model served by {self.plan} cannot be trained; train the original and optimise it again"
            )
        return self

    def __getattr__(self, name: str) -> Any:
        original = self.__dict__.get("_original")
        if original is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(original, name)

    def parameters(self, recurse: bool = True) -> Any:
        return self._source().parameters(recurse)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self._source().state_dict(*args, **kwargs)

    def _source(self) -> nn.Module:
        original: nn.Module | None = self.__dict__["_original"]
        if original is None:
            raise SeamlineError("this model was loaded without its original; give it with load(..., model=...)")
        return original

    def __reduce__(self) -> Any:
        files = {file.name: file.read_bytes() for file in self.folder.iterdir() if file.is_file()}
        return _unpacked, (files, self.plan, self.form, self.shapes, self._original, self.facts)

    def __deepcopy__(self, memo: dict[int, Any]) -> AcceleratedModel:
        original = copy.deepcopy(self.__dict__["_original"], memo)
        return AcceleratedModel(self.folder, self.plan, self.form, self.shapes, original, self._keeps, self.facts)


def _unpacked(files: dict[str, bytes], plan: Plan, form: CallForm, shapes: Any, original: Any, facts: Any) -> Any:
    scratch = Scratch()
    for name, content in files.items():
        (scratch.path / name).write_bytes(content)
    return AcceleratedModel(scratch.path, plan, form, shapes, original, scratch, facts)
