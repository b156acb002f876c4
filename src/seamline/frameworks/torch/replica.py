"""One worker's copy of the model, kept in agreement by ``DistributedDataParallel``."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seamline.frameworks.torch.world import TorchWorld


class TorchReplica:
    """The verbs of ``Replica`` for torch; ``model`` is what the loop calls."""

    def __init__(self, model: nn.Module, world: TorchWorld) -> None:
        self.model = model
        self._world = world

    def share_start(self) -> None:
        if self._world.size > 1:
            with torch.no_grad():
                for value in self.model.state_dict().values():
                    if isinstance(value, torch.Tensor):
                        dist.broadcast(value, 0)

    def average_gradients(self) -> None:
        learns = any(parameter.requires_grad for parameter in self.model.parameters())
        if self._world.size > 1 and learns:
            device = self._world.device
            self.model = DistributedDataParallel(
                self.model,
                device_ids=[device] if device.type == "cuda" else None,
                init_sync=False,
                gradient_as_bucket_view=True,
            )

    def holding_back(self) -> AbstractContextManager[Any]:
        """Within it, backward passes add up here and are not averaged yet."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return contextlib.nullcontext()
