"""An exponential moving average of a model's weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


class MovingAverage:
    """Follows the weights that train, as ``torch.optim.swa_utils.AveragedModel`` would; buffers are left alone.

    The first update takes the weights as they are, the following ones move the average towards them.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._model = model
        self._move = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
        self._averages: dict[str, torch.Tensor] = {}
        self.updates = 0
        self.refresh()

    def refresh(self) -> None:
        """Follow parameters that are trained from now on, too; until now their average is what they are."""
        for name, parameter in self._model.named_parameters():
            if parameter.requires_grad and name not in self._averages:
                self._averages[name] = parameter.detach().clone()

    @torch.no_grad()
    def update(self) -> None:
        """After a step."""
        averages, weights = list(self._averages.values()), list(self.weights().values())
        if self.updates == 0:
            for average, weight in zip(averages, weights, strict=True):
                average.copy_(weight)
        elif averages:
            self._move(averages, weights, self.updates)
        self.updates += 1

    def weights(self) -> dict[str, torch.Tensor]:
        """The weights behind the averages."""
        known = dict(self._model.named_parameters())
        return {name: known[name].detach() for name in self._averages}

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Within, the model's weights are the averages."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, weight in self.weights().items():
            kept = weight.clone()
            weight.copy_(self._averages[name])
            self._averages[name].copy_(kept)

    @torch.no_grad()
    def load(self, weights: Mapping[str, torch.Tensor], updates: int) -> None:
        """The model holds averages; put the weights behind them into it."""
        self._averages = {}
        self.refresh()
        known = dict(self._model.named_parameters())
        for name, weight in weights.items():
            self._averages[name] = known[name].detach().clone()
            known[name].copy_(weight)
        self.updates = updates
