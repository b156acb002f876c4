"""Batches as the tensors that a model takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from seamline.core import tree
from seamline.frameworks.torch.frozen.mark import cut as piece


@dataclass(frozen=True, slots=True)
class Placement:
    """Where tensors go and in which form."""

    device: torch.device
    dtype: torch.dtype
    channels_last: bool = False

    @classmethod
    def of(cls, model: nn.Module, device: torch.device, *, channels_last: bool) -> Placement:
        floating = (p.dtype for p in model.parameters() if p.is_floating_point())
        return cls(device, next(floating, torch.get_default_dtype()), channels_last)

    def put(self, data: Any) -> Any:
        """Everything as tensors on the device; numpy floats in the model's precision, tensors in their own."""
        return tree.map_leaves(self._put_leaf, data)

    def _put_leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            leaf = torch.from_numpy(leaf)
            if leaf.is_floating_point():
                leaf = leaf.to(self.dtype)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.to(self.device, non_blocking=True)
        if self.channels_last and leaf.ndim == 4:
            leaf = leaf.to(memory_format=torch.channels_last)
        return leaf


def call(model: nn.Module, inputs: Any) -> Any:
    """A dict as keywords, a tuple or list as positions, anything else as the only argument."""
    if isinstance(inputs, dict):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def pieces(inputs: Any, targets: Any, count: int) -> Iterator[tuple[Any, Any, float]]:
    """A batch in at most ``count`` pieces, each with its share of the rows."""
    rows = len(next(tree.leaves(inputs)))
    if count == 1 or rows == 1:
        yield inputs, targets, 1.0
        return
    size = -(-rows // count)
    for first in range(0, rows, size):
        cut = slice(first, first + size)

        def take(leaf: Any, cut: slice = cut) -> Any:
            return piece(leaf, cut)

        part = min(size, rows - first) / rows
        yield tree.map_leaves(take, inputs), tree.map_leaves(take, targets), part


def to_arrays(outputs: Any) -> Any:
    """A model's outputs as numpy arrays."""

    def array(leaf: Any) -> Any:
        leaf = leaf.detach().cpu()
        return (leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy()

    return tree.map_leaves(array, outputs)
