"""PyTorch on this machine: faster training, faster inference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamline.core.errors import UnavailableError
from seamline.nano.torch.inference import InferenceOptimizer
from seamline.nano.torch.patching import patch_cuda, patch_torch, unpatch_cuda, unpatch_torch
from seamline.nano.torch.torch_nano import TorchNano, nano

if TYPE_CHECKING:
    from seamline.nano.torch.trainer import Trainer

__all__ = [
    "InferenceOptimizer",
    "TorchNano",
    "Trainer",
    "nano",
    "patch_cuda",
    "patch_torch",
    "unpatch_cuda",
    "unpatch_torch",
]


def __getattr__(name: str) -> Any:
    """``Trainer`` only when it is asked for: it needs Lightning, which nothing else here does."""
    if name != "Trainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from seamline.nano.torch.trainer import Trainer
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("lightning"):
            raise UnavailableError.needs("lightning", "lightning") from error
        raise
    return Trainer
