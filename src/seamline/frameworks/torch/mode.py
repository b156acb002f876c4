"""Training mode for what trains, and only for that."""

from __future__ import annotations

from torch import nn


class TrainingMode:
    """Puts a model into training mode, but for the frozen modules that the user has put into evaluation mode.

    So the statistics of a frozen backbone stay as they are, if the user has called its ``eval()``.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._resting = [module for module in model.modules() if not module.training] if model.training else []

    def enter(self) -> None:
        self._model.train()
        for module in self._resting:
            module.training = any(parameter.requires_grad for parameter in module.parameters())
