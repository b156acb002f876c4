"""Adam for models in which some gradients are sparse: embeddings touch only the rows that a batch has."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adam import adam


class SparseAdam(Optimizer):
    """``torch.optim.Adam`` for dense gradients and ``torch.optim.SparseAdam`` for sparse ones, parameter by parameter.

    So one optimizer serves a model with ``nn.Embedding(sparse=True)``. A sparse gradient updates only the rows it has;
    ``weight_decay`` would touch them all, and is refused there.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        if not (lr >= 0 and eps > 0 and weight_decay >= 0):
            raise ValueError(f"`lr >= 0`, `eps > 0`, `weight_decay >= 0` must hold, but got {(lr, eps, weight_decay)}")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"`0 <= beta < 1` must hold for both betas, but got {betas}")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update, of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            moved = [parameter for parameter in group["params"] if parameter.grad is not None]
            for parameter in moved:
                self._prepare(parameter)
            self._dense(group, [parameter for parameter in moved if not parameter.grad.is_sparse])
            for parameter in moved:
                if parameter.grad.is_sparse:
                    self._sparse(group, parameter)
        return loss

    def _prepare(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)  # a tensor, as Adam has it: their states can be exchanged
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)

    def _dense(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        if not parameters:
            return
        states = [self.state[parameter] for parameter in parameters]
        adam(
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            has_complex=any(torch.is_complex(parameter) for parameter in parameters),
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=group["maximize"],
        )

    def _sparse(self, group: dict[str, Any], parameter: Tensor) -> None:
        if group["weight_decay"]:
            raise ValueError(
                "weight_decay would touch every row of a parameter whose gradient is sparse; "
                "give that parameter a group of its own with weight_decay=0"
            )
        assert parameter.grad is not None
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        state["step"] += 1
        gradient = parameter.grad.coalesce()  # the update is not linear, so each row must be there once
        rows, values = tuple(gradient.indices()), gradient.values()
        if group["maximize"]:
            values = -values
        mean, square = state["exp_avg"][rows], state["exp_avg_sq"][rows]
        mean_change = (values - mean) * (1 - beta1)
        square_change = (values.pow(2) - square) * (1 - beta2)
        state["exp_avg"][rows] = mean + mean_change
        state["exp_avg_sq"][rows] = square + square_change
        step = float(state["step"])
        rate = float(group["lr"]) * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        root = (square + square_change).sqrt() + group["eps"]
        parameter[rows] += -rate * ((mean + mean_change) / root)
