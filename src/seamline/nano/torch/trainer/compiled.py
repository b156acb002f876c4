"""A plain module with its loss, optimizer and metrics, as a ``LightningModule``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from torch import nn


class CompiledModule(LightningModule):
    """Batches are ``(x, y)`` or ``(x1, x2, …, y)``; losses and metrics are logged by their names."""

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        optimizer: torch.optim.Optimizer | None,
        scheduler: Any,
        metrics: Sequence[Any],
    ) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self._optimizer = optimizer
        self._scheduler = scheduler
        self.metrics = nn.ModuleDict(
            {stage: nn.ModuleList(copy.deepcopy(metric) for metric in metrics) for stage in ("val", "test")}
        )

    @classmethod
    def of(
        cls, model: nn.Module, loss: Any, optimizer: Any, scheduler: Any, metrics: Sequence[Any] | None
    ) -> LightningModule:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, but got {model!r} of type {type(model).__name__}")
        if isinstance(model, LightningModule):
            if loss is not None or optimizer is not None:
                raise ValueError("a LightningModule brings its loss and optimizer along; give it to fit as it is")
            return model
        if optimizer is not None:
            _check_belongs(optimizer, model)
        if scheduler is not None and optimizer is None:
            raise ValueError("a scheduler needs the optimizer that it drives; give optimizer= too")
        for metric in metrics or ():
            if not isinstance(metric, nn.Module):
                raise TypeError(f"metrics must be torchmetrics, but got {metric!r}")
        return cls(model, loss, optimizer, scheduler, list(metrics or ()))

    def forward(self, *inputs: Any) -> Any:
        return self.model(*inputs)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self._step(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        return self._step(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        return self._step(batch, "test")

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        inputs = batch[:-1] if isinstance(batch, (list, tuple)) and len(batch) > 1 else batch
        return self(*inputs) if isinstance(inputs, (list, tuple)) else self(inputs)

    def _step(self, batch: Any, stage: str) -> Any:
        *inputs, targets = batch
        outputs = self(*inputs)
        loss = None
        if self.loss is not None:
            loss = self.loss(outputs, targets)
            self.log(f"{stage}_loss", loss, prog_bar=True)
        elif stage == "train":
            raise ValueError("loss is missing; Trainer.compile(model, loss, optimizer) is needed to fit")
        if stage in self.metrics:
            for metric in cast("nn.ModuleList", self.metrics[stage]):
                metric(outputs, targets)
                self.log(f"{stage}_{type(metric).__name__}", metric)  # type: ignore[arg-type]
        return loss

    def configure_optimizers(self) -> Any:
        if self._optimizer is None:
            raise ValueError("optimizer is missing; Trainer.compile(model, loss, optimizer) is needed to fit")
        return self._optimizer if self._scheduler is None else ([self._optimizer], [self._scheduler])


def _check_belongs(optimizer: Any, model: nn.Module) -> None:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, but got {optimizer!r}")
    ours = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("the optimizer holds no parameter of this model; make it with model.parameters()")
