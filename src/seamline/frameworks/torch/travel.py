"""Tensors on their way to workers of the same machine: as arrays, which are shared instead of copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from seamline.core import pickling


def _reduce(tensor: torch.Tensor) -> Any:
    """As a numpy array where that is all there is to it, else in torch's own way."""
    ordinary = (
        tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_leaf
        and tensor.is_contiguous()
        and tensor.dtype not in (torch.bfloat16, torch.complex32)
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.__dict__
        and not tensor._backward_hooks
    )
    if not ordinary:
        return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    return _restore, (type(tensor), tensor.detach().numpy(), tensor.requires_grad)


def _restore(kind: type[torch.Tensor], array: Any, requires_grad: bool) -> torch.Tensor:
    # Small arrays travel inside the pickle and come out read-only.
    tensor = torch.from_numpy(array if array.flags.writeable else np.array(array))
    return nn.Parameter(tensor, requires_grad) if kind is nn.Parameter else tensor.requires_grad_(requires_grad)


def register() -> None:
    for kind in (torch.Tensor, nn.Parameter):
        pickling.reduce_with(kind, _reduce)
