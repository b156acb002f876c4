"""How a module is called and answers: which parts are tensors, and what else there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

_TENSOR = object()
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Shape:
    """The structure of a value, with places for its tensors; everything else in it is fixed."""

    spec: Any
    fixed: tuple[Any, ...]

    @classmethod
    def of(cls, value: Any) -> Shape:
        leaves, spec = pytree.tree_flatten(value)
        return cls(spec, tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves))

    def tensors(self, value: Any) -> list[torch.Tensor] | None:
        """The tensors of a value of this structure; ``None`` if it is built otherwise."""
        leaves, spec = pytree.tree_flatten(value)
        if len(leaves) != len(self.fixed) or spec != self.spec:
            return None
        found = []
        for expected, leaf in zip(self.fixed, leaves, strict=True):
            if expected is _TENSOR:
                if not isinstance(leaf, torch.Tensor):
                    return None
                found.append(leaf)
            elif not (leaf is expected or (isinstance(expected, _PLAIN) and leaf == expected)):
                return None
        return found

    def rebuild(self, tensors: Sequence[Any]) -> Any:
        left = iter(tensors)
        return pytree.tree_unflatten([next(left) if part is _TENSOR else part for part in self.fixed], self.spec)

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return sum(part is _TENSOR for part in self.fixed)

    @property
    def strange(self) -> str | None:
        """The type of a part that is neither a tensor nor a plain value, and so may hold anything."""
        parts = (part for part in self.fixed if part is not _TENSOR and not isinstance(part, _PLAIN))
        return next((type(part).__name__ for part in parts), None)


def some_rows(tensors: Sequence[torch.Tensor], rows: int) -> list[torch.Tensor]:
    """The first rows of tensors that all have the same number of them; otherwise all of each."""
    length = len(tensors[0]) if tensors[0].ndim else 0
    if any(tensor.ndim == 0 or len(tensor) != length for tensor in tensors):
        return list(tensors)
    return [tensor[:rows] for tensor in tensors]
