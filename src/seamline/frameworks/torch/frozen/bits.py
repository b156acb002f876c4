"""Tensors as bytes, compared to the last of them."""

from __future__ import annotations

import torch


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(raw(one), raw(other)))


def raw(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, a line for each row."""
    rows = len(tensor) if tensor.ndim else 1
    if tensor.numel() == 0:
        return torch.empty(rows, 0, dtype=torch.uint8)
    return tensor.detach().contiguous().reshape(rows, -1).view(torch.uint8)
