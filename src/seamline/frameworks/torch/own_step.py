"""A step that the user has written, in the place of forward pass and loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from seamline.core.mean import Mean, Numbers
from seamline.core.run import Run
from seamline.core.shards import Unpaired
from seamline.frameworks.torch.world import TorchWorld

RESERVED = ("epoch", "lr", "step")
"""Names that every epoch's record has for something else."""


class Stepping(nn.Module):
    """A model whose forward pass is a whole step, so that whoever wraps it to average gradients sees all of it."""

    def __init__(self, model: nn.Module, step: Callable[[nn.Module, Any], Any]) -> None:
        super().__init__()
        self.model = model
        self._step = step

    def forward(self, batch: Any) -> Any:
        return self._step(self.model, batch)


class OwnStep:
    """``train_step(model, batch)``, whose loss is the mean over the rows of its batch."""

    sums = False
    reports = True
    name = "train_step"

    def __init__(self, model: nn.Module, step: Callable[[nn.Module, Any], Any]) -> None:
        self.called: nn.Module = Stepping(model, step)
        self._latest: dict[str, Any] = {}
        self._numbers = Numbers()

    def during(self, run: Run) -> AbstractContextManager[None]:
        return nullcontext()

    def counts_unevenly(self, targets: Any) -> bool:
        return False

    def count(self, targets: Any, rows: float) -> float:
        return float(rows)

    def compute(self, called: nn.Module, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        loss, self._latest = read(called(self.batch(inputs, targets)), self.name)
        if not loss.requires_grad:
            raise ValueError(
                f"the loss of {self.name} depends on no parameter that is trained; "
                "let it come from the model's outputs, without .detach(), .item() or no_grad"
            )
        return loss if counted else nothing([loss])

    def batch(self, inputs: Any, targets: Any) -> Any:
        """What the step gets of a batch."""
        return paired(inputs, targets)

    def tally(self, value: torch.Tensor, counted: float) -> Mean:
        self._numbers.add({name: part_of_mean(number, counted) for name, number in self._latest.items()})
        return part_of_mean(value.detach(), counted)

    def numbers(self) -> dict[str, Mean]:
        numbers, self._numbers = self._numbers, Numbers()
        return numbers

    def begin_epoch(self) -> None:
        """Also called when an epoch goes on among other peers: what a step had reported that they lost is void."""
        self._numbers = Numbers()

    def end_epoch(self, world: TorchWorld) -> dict[str, float]:
        return {}


def check(step: Any) -> None:
    """Refuse what cannot be called with a model and a batch."""
    if not callable(step):
        raise TypeError(f"train_step must be a function of the model and a batch, but got {step!r}")
    try:
        inspect.signature(step).bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"train_step is called as train_step(model, batch), which this one does not take ({error})"
        ) from None


def paired(inputs: Any, targets: Any) -> tuple[Any, Any]:
    """``(inputs, targets)``, the form in which functions of the user get a batch."""
    if isinstance(inputs, Unpaired):
        inputs = inputs[0] if len(inputs) == 1 else tuple(inputs)
    return inputs, targets


def read(returned: Any, name: str) -> tuple[torch.Tensor, dict[str, Any]]:
    """The loss and the other numbers of what a step has returned."""
    numbers = dict(returned) if isinstance(returned, Mapping) else {"loss": returned}
    loss = numbers.pop("loss", None)
    if not isinstance(loss, torch.Tensor):
        nothing_there = "a dict without 'loss'" if isinstance(returned, Mapping) else "nothing"
        what = nothing_there if loss is None else type(loss).__name__
        raise TypeError(f"{name} returned {what}; {_ADVICE}")
    if loss.numel() != 1:
        raise ValueError(f"the loss of {name} has shape {tuple(loss.shape)}, not one number; {_ADVICE}")
    return loss.reshape(()), {key: number_of(value, key) for key, value in numbers.items()}


_ADVICE = "return the mean loss of the batch as a tensor, or a dict with it as 'loss' and other numbers"


def number_of(value: Any, name: str) -> Any:
    """One number, as a float or as a tensor that belongs to no graph."""
    if name in RESERVED:
        raise ValueError(f"{name!r} is a name of every epoch's record; report your number under another")
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.detach().reshape(())
        return float(value) if value.device.type == "cpu" else value
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name!r} is {type(value).__name__} instead of one number ({error})") from error


def part_of_mean(value: Any, counted: float) -> Mean:
    """A value over some rows as a part of the mean over all; it stays on its device."""
    on_host = not isinstance(value, torch.Tensor) or value.device.type == "cpu"
    return Mean(float(value) * counted if on_host else value * counted, counted)


def nothing(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """Zero, in a way that reaches every parameter."""
    return torch.stack([torch.nan_to_num(tensor, 0.0, 0.0, 0.0).sum() for tensor in tensors]).sum() * 0.0
