"""Which rows of the data set a tensor holds, written on the tensor itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from seamline.frameworks.torch.frozen.stand_in import Numbers

_NAME = "_seamline_rows"


@dataclass(frozen=True, slots=True)
class Mark:
    """The numbers of the rows in a tensor, and the state in which it was handed out."""

    numbers: Numbers
    version: int


def mark(tensor: torch.Tensor, numbers: Numbers) -> None:
    setattr(tensor, _NAME, Mark(numbers, tensor._version))


def marked(tensor: torch.Tensor) -> Mark | None:
    found = getattr(tensor, _NAME, None)
    return found if isinstance(found, Mark) else None


def cut(leaf: Any, rows: slice) -> Any:
    """Some rows of a tensor, which still know their numbers; of anything else, the same slice."""
    piece = leaf[rows]
    found = marked(leaf) if type(leaf) is torch.Tensor else None
    if found is not None and found.version == leaf._version:
        setattr(piece, _NAME, replace(found, numbers=found.numbers[rows], version=piece._version))
    return piece
