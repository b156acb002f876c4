"""A torch module from the files of a plan, or a copy of the original where it is at hand."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.core.errors import ExportError
from seamline.core.files import link_or_copy
from seamline.core.runtime import Portable

PROGRAM = "program.pt2"


def store_program(model: Portable, folder: Path) -> None:
    """Keep torch's exported form with the plan; a model that has none can only be served where it is."""
    program = model.program()
    if program is not None:
        link_or_copy(program, folder / PROGRAM)


def load_module(folder: Path, original: Any) -> nn.Module:
    if original is not None:
        return copy.deepcopy(original).eval()  # type: ignore[no-any-return]
    if not (folder / PROGRAM).exists():
        raise ExportError(f"{folder} holds no exported program; give the original with load(..., model=...)")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        return torch.export.load(folder / PROGRAM).module()
