"""One worker's copy of the model, kept in agreement by ``DistributedDataParallel``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from inspect import signature
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torch.nn.parallel import DistributedDataParallel

from seamline.core.clock import gathered, shared
from seamline.core.errors import SeamlineError
from seamline.core.mean import Mean
from seamline.frameworks.torch.randomness import random_state, set_random_state
from seamline.frameworks.torch.timed import TimedParallel
from seamline.frameworks.torch.world import TorchWorld

_NEW_NAME, _OLD_NAME = "forward_sync_buffers", "broadcast_buffers"
_BUFFERS_APART: dict[str, Any] = {
    _NEW_NAME if _NEW_NAME in signature(DistributedDataParallel).parameters else _OLD_NAME: False
}
"""Buffers are shared when a step is done, and not when the next one begins, so that every worker then has all of it."""
_TOGETHER_BYTES = 64 << 20
"""How much is sent in one go."""


class TorchReplica:
    """The verbs of ``Replica`` for torch; ``model`` is what the loop calls: the model, or a step around it."""

    def __init__(self, model: nn.Module, world: TorchWorld, called: nn.Module | None = None) -> None:
        self.model = self._called = called or model
        self._plain = model
        self._world = world
        self._averages = False
        self._agreeing = False
        self._trainable: list[str] = []
        self._checked = world.size == 1

    def share_start(self) -> None:
        _share((value for value in self._plain.state_dict().values() if isinstance(value, torch.Tensor)), self._world)

    def average_gradients(self) -> None:
        self._averages = True
        self.expect_agreement()
        self.refresh()

    def expect_agreement(self) -> None:
        """From now on, replicas that come apart are an error."""
        self._agreeing = True

    def refresh(self) -> None:
        """Follow the user who has frozen or thawed a part of the model."""
        trainable = [name for name, parameter in self._plain.named_parameters() if parameter.requires_grad]
        if self._averages and self._world.size > 1 and trainable != self._trainable:
            self._trainable = trainable
            self._checked = not trainable
            self._wrap(some_unused=False)

    def _wrap(self, *, some_unused: bool) -> None:
        device = self._world.device
        self.model = self._called
        if self._trainable:
            self.model = TimedParallel(
                self._called,
                self._world.clock,
                device_ids=[device] if device.type == "cuda" else None,
                init_sync=False,
                **_BUFFERS_APART,
                gradient_as_bucket_view=True,
                find_unused_parameters=some_unused,
            )

    def once_checked(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The loss of ``compute``; the first time, find out whether it reaches every parameter.

        Looking for unused parameters costs time in every step, and not looking fails when there are some. What is
        computed twice leaves the traces of once: a run that goes on elsewhere finds out again, in another step.
        """
        if self._checked:
            return compute()
        before, buffers = random_state(), [buffer.clone() for buffer in self._plain.buffers()]
        loss = compute()
        self._checked = True
        unused = len(reached([loss])) < len(self._trainable)
        if not self._world.sum(unused):
            return loss
        self._wrap(some_unused=True)
        set_random_state(before)
        with torch.no_grad():
            for buffer, value in zip(self._plain.buffers(), buffers, strict=True):
                buffer.copy_(value)
        return compute()

    def holding_back(self) -> AbstractContextManager[Any]:
        """Within it, backward passes add up here and are not averaged yet."""
        if isinstance(self.model, DistributedDataParallel):
            return self.model.no_sync()
        return contextlib.nullcontext()

    def entered(self, start: int, rows: int, loss: Mean) -> torch.Tensor | None:
        """What every worker did in a step, on every worker; the first one's buffers come with it."""
        if self._world.size == 1:
            return None
        entry = torch.tensor([start, rows, 0.0, loss.count], dtype=torch.float64, device=self._world.device)
        entry[2] = loss.total
        books = entry.new_empty(self._world.size, len(entry))
        with self._world.clock.communicating(gathered(entry.nbytes, self._world.size)):
            dist.all_gather(list(books), entry)
        share_buffers(self._plain, self._world)
        return books

    def check_agreement(self) -> None:
        """Raise if the workers' weights have come apart, which nothing but foreign code can do."""
        if not self._agreeing or self._world.size == 1:
            return
        with torch.no_grad():
            ours = [float(parameter.double().sum()) for parameter in self._plain.parameters()]
        everyone = self._world.all_gather(ours)
        for (name, _), sums in zip(self._plain.named_parameters(), zip(*everyone, strict=True), strict=True):
            if len({repr(value) for value in sums}) > 1:
                raise SeamlineError(
                    f"the workers disagree on {name}: something has changed the model on some of them. "
                    "A callback that changes the model needs `everywhere = True`"
                )


def share_buffers(model: nn.Module, world: TorchWorld) -> None:
    """Give every worker the first worker's buffers, such as running statistics."""
    _share(model.buffers(), world)


@torch.no_grad()
def _share(tensors: Iterable[torch.Tensor], world: TorchWorld) -> None:
    """The first worker's values on every worker.

    Written out, because ``torch.distributed._broadcast_coalesced`` lets no other thread of the process run while it
    waits, and one of them tells the driver that it does.
    """
    for together in _parcels(tensors) if world.size > 1 else ():
        flat = _flatten_dense_tensors(together)  # type: ignore[no-untyped-call]
        with world.clock.communicating(shared(flat.nbytes, world.size)):
            dist.broadcast(flat, 0)
        if world.rank != 0:
            parts = _unflatten_dense_tensors(flat, together)  # type: ignore[no-untyped-call]
            for tensor, received in zip(together, parts, strict=True):
                tensor.copy_(received)


def _parcels(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type that can travel together, in one order on every worker."""
    kinds: dict[tuple[torch.dtype, torch.device], list[torch.Tensor]] = {}
    for tensor in tensors:
        parcel = kinds.setdefault((tensor.dtype, tensor.device), [])
        parcel.append(tensor.detach())
        if sum(each.nbytes for each in parcel) > _TOGETHER_BYTES:
            yield kinds.pop((tensor.dtype, tensor.device))
    yield from kinds.values()


def reached(tensors: Iterable[torch.Tensor]) -> set[int]:
    """The leaves that a backward pass from these tensors would reach."""
    seen, leaves, left = set(), set(), [tensor.grad_fn for tensor in tensors]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(id(node.variable))
        left.extend(following for following, _ in node.next_functions)
    return leaves
