"""``DistributedDataParallel`` that says how long it lets a worker wait for its peers."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from seamline.core import tree
from seamline.core.clock import Clock, reduced, shared


class TimedParallel(DistributedDataParallel):
    """The same bits as without timing: nothing is done to a tensor, and no communication hook takes part.

    Gradients travel while others are still being computed, and that costs a worker nothing. What it waits for is the
    time from its last gradient to the average of all: autograd calls back when it is through with its graph, and
    again after those that were to be called by then, of which the reducer's waiting is one.
    """

    def __init__(self, module: nn.Module, clock: Clock, **options: Any) -> None:
        super().__init__(module, **options)
        self._clock = clock
        self._computed_at = 0.0
        self._noticed = False
        workers = self.process_group.size()
        gradients = sum(each.nbytes for each in module.parameters() if each.requires_grad)
        self._gradient_bytes = reduced(gradients, workers)
        self._buffer_bytes = shared(sum(each.nbytes for each in module.buffers()), workers)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        self._noticed = False
        outputs = super().forward(*inputs, **options)  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled() and self.require_backward_grad_sync:
            for leaf in tree.leaves(outputs):
                if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
                    leaf.register_hook(self._notice)  # type: ignore[no-untyped-call]
        return outputs

    def _sync_buffers(self) -> None:
        with self._clock.communicating(self._buffer_bytes):
            super()._sync_buffers()  # type: ignore[no-untyped-call]

    def _notice(self, _: torch.Tensor) -> None:
        """A backward pass has begun."""
        if not self._noticed:
            self._noticed = True
            _when_through(self._computed)

    def _computed(self) -> None:
        self._computed_at = time.perf_counter()
        _when_through(self._averaged)

    def _averaged(self) -> None:
        self._clock.communicated(time.perf_counter() - self._computed_at, self._gradient_bytes)


def _when_through(call: Any) -> None:
    """After the graph that is being computed, in the order of asking."""
    Variable._execution_engine.queue_callback(call)
