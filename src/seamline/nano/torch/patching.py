"""Existing programs on this machine, without a change of theirs: call these before the program's own imports.

``patch_torch()`` gives a Lightning program the accelerated ``Trainer`` and, where torchvision is missing, Seamline's
vision in its place. ``patch_cuda()`` lets a program that says ``cuda`` run on a CPU. Both can be taken back exactly.

Names that were bound before (``from lightning import Trainer``) stay what they were: that is why the call comes first.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import warnings
from dataclasses import dataclass

from seamline.core.errors import SeamlineError
from seamline.nano.torch.patches.alias import Alias
from seamline.nano.torch.patches.replaced import Replaced

_VISION = {"transforms": "seamline.nano.torch.vision.transforms", "datasets": "seamline.nano.torch.vision.datasets"}
_TRAINERS = ("lightning", "lightning.pytorch", "lightning.pytorch.trainer")


@dataclass(frozen=True, slots=True)
class Patched:
    """What a patch has put in place: names that hold something else now, and packages found elsewhere."""

    names: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


_torch_patch: tuple[Patched, contextlib.ExitStack] | None = None
_cuda_patch: tuple[Patched, contextlib.ExitStack] | None = None


def patch_torch(vision: bool | None = None) -> Patched:
    """Let ``lightning.Trainer`` be the accelerated one; ``pytorch_lightning`` is Lightning's own package then.

    ``vision=None`` brings Seamline's transforms and data sets as ``torchvision`` where that is not installed, ``True``
    everywhere, ``False`` nowhere.
    """
    global _torch_patch
    if _torch_patch is not None:
        return _torch_patch[0]
    replaced, aliases, undo = Replaced(), [], contextlib.ExitStack()
    undo.callback(replaced.undo)
    if importlib.util.find_spec("lightning") is not None:
        aliases.append(_one_lightning())
        _replace_trainers(replaced)
    if vision or (vision is None and importlib.util.find_spec("torchvision") is None):
        _let_torchmetrics_look_first()
        aliases.append(Alias("torchvision", _VISION))
    for alias in aliases:
        alias.install()
        undo.callback(alias.remove)
    _torch_patch = Patched(replaced.names(), tuple(alias.name for alias in aliases)), undo
    return _torch_patch[0]


def unpatch_torch() -> None:
    """Everything as it was before ``patch_torch``; nothing, if that was not called."""
    global _torch_patch
    if _torch_patch is not None:
        _torch_patch[1].close()
        _torch_patch = None


def patch_cuda(*, available: bool = False) -> Patched:
    """Let a program that asks for CUDA run on the CPU: ``.cuda()``, ``device="cuda"``, ``map_location="cuda"``, ….

    ``torch.cuda.is_available()`` goes on telling the truth, unless ``available=True``, for programs that give up
    without a GPU. Where CUDA is there nothing is changed, with a warning that says so.
    """
    global _cuda_patch
    import torch

    from seamline.nano.torch.patches.cuda import OnCpu, replace_cuda

    if _cuda_patch is not None:
        return _cuda_patch[0]
    if torch.cuda.is_available():
        warnings.warn("this machine has CUDA, and patch_cuda() leaves everything as it is", stacklevel=2)
        return Patched()
    replaced, undo = Replaced(), contextlib.ExitStack()
    undo.callback(replaced.undo)
    replace_cuda(replaced, available)
    undo.enter_context(OnCpu())
    _cuda_patch = Patched(replaced.names()), undo
    return _cuda_patch[0]


def unpatch_cuda() -> None:
    """Everything as it was before ``patch_cuda``; nothing, if that was not called. In the thread that called it."""
    global _cuda_patch
    if _cuda_patch is not None:
        _cuda_patch[1].close()
        _cuda_patch = None


def _one_lightning() -> Alias:
    """``pytorch_lightning`` is a copy of ``lightning.pytorch`` whose classes do not mix with it."""
    if "pytorch_lightning" in sys.modules:
        raise SeamlineError("pytorch_lightning is imported already; call patch_torch() before it")
    return Alias("pytorch_lightning", {"": "lightning.pytorch"})


def _replace_trainers(replaced: Replaced) -> None:
    from seamline.nano.torch.trainer import Trainer

    for name in _TRAINERS:
        replaced.put(importlib.import_module(name), "Trainer", Trainer)


def _let_torchmetrics_look_first() -> None:
    """It looks once whether torchvision is there, and would then expect all of it."""
    if importlib.util.find_spec("torchmetrics") is not None:
        importlib.import_module("torchmetrics")
