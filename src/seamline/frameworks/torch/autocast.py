"""Lower precision where a recipe asks for it."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch

from seamline.core.tuning import Tuning


def autocast(tuning: Tuning, device: torch.device) -> AbstractContextManager[Any]:
    if tuning.precision == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()
