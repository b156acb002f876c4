"""The precision that surrounds a call: whether automatic casting is on, and to what."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Ambient:
    """Autocast as it was when someone looked; entering it brings that back."""

    device: str
    on: bool
    dtype: torch.dtype

    @classmethod
    def now(cls, device: str) -> Ambient:
        return cls(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))

    def again(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device, dtype=self.dtype, enabled=self.on)

    def still_holds(self) -> bool:
        on = torch.is_autocast_enabled(self.device)
        return on == self.on and (not on or torch.get_autocast_dtype(self.device) == self.dtype)
