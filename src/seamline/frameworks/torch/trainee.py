"""The model in training with all that it needs to go on later."""

from __future__ import annotations

from copy import copy as shallow
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.core.errors import CheckpointError
from seamline.core.framework import State
from seamline.frameworks.torch import state as files
from seamline.frameworks.torch.build import Built

AVERAGED = "averaged"
"""The weights behind a moving average; the average itself is the model, for whoever reads a state."""


class TorchTrainee:
    """Model, optimizer and scheduler as one state."""

    framework = "torch"

    def __init__(self, built: Built) -> None:
        self._built = built
        self._copy: State | None = None
        self._marked: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._schedule: tuple[Any, list[dict[str, Any]]] | None = None

    @property
    def model(self) -> nn.Module:
        return self._built.model

    def state(self) -> State:
        scheduler, average = self._built.schedule.scheduler, self._built.average
        rest = {
            "optimizer": on_cpu(self._built.optimizer.state_dict()),
            "scheduler": scheduler.state_dict() if scheduler is not None else None,
        }
        if average is None:
            return {"model": on_cpu(self._built.model.state_dict()), **rest}
        behind = {"weights": copied(on_cpu(average.weights())), "updates": average.updates}
        with average.in_place():
            return {"model": copied(on_cpu(self._built.model.state_dict())), AVERAGED: behind, **rest}

    def snapshot(self) -> State:
        self._copy = copied(self.state(), self._copy)
        return self._copy

    def mark(self, *, epoch: bool = False) -> None:
        """A step may change buffers on the way; at the end of an epoch the scheduler changes rates."""
        if epoch:
            groups = [{k: v for k, v in group.items() if k != "params"} for group in self._built.optimizer.param_groups]
            scheduler = self._built.schedule.scheduler
            self._schedule = deepcopy((scheduler.state_dict() if scheduler is not None else None, groups))
            return
        self._schedule = None
        self._marked = [(buffer, buffer.detach().clone()) for buffer in self._built.model.buffers()]

    def take_back(self) -> None:
        if self._schedule is None:
            with torch.no_grad():
                for buffer, before in self._marked:
                    buffer.copy_(before)
            return
        scheduler, groups = self._schedule
        for group, options in zip(self._built.optimizer.param_groups, groups, strict=True):
            group.update(options)
        if self._built.schedule.scheduler is not None:
            self._built.schedule.scheduler.load_state_dict(scheduler)

    def load(self, state: State) -> None:
        load_model(self._built.model, state)
        if self._built.average is not None:
            behind = state.get(AVERAGED, {"weights": {}, "updates": 0})
            self._built.average.load(behind["weights"], behind["updates"])
        if state.get("optimizer"):
            self._load_optimizer(state["optimizer"])
        scheduler = self._built.schedule.scheduler
        if state.get("scheduler") and scheduler is not None:
            scheduler.load_state_dict(state["scheduler"])

    def _load_optimizer(self, state: dict[str, Any]) -> None:
        try:
            self._built.optimizer.load_state_dict(state)
        except (ValueError, KeyError) as error:
            raise CheckpointError(
                f"the saved optimizer does not fit {type(self._built.optimizer).__name__} of this model: {error}"
            ) from error

    def write(self, state: State, folder: Path) -> None:
        files.write(state, folder)

    def read(self, folder: Path) -> State:
        return files.read(folder)


def load_model(model: nn.Module, state: State) -> None:
    """Put saved weights into a model, after a check that they are of such a model."""
    ours, saved = model.state_dict(), state["model"]
    differences = [f"{name} is only in the saved one" for name in saved if name not in ours]
    differences += [f"{name} is only in this one" for name in ours if name not in saved]
    differences += [
        f"{name} is {tuple(saved[name].shape)} there and {tuple(value.shape)} here"
        for name, value in ours.items()
        if name in saved and isinstance(value, torch.Tensor) and saved[name].shape != value.shape
    ]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise CheckpointError(f"the saved weights are of another model: {'; '.join(differences[:3])}{more}")
    model.load_state_dict(saved)


def on_cpu(value: Any) -> Any:
    """The same structure with every tensor on the CPU, where it already was if it was."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, dict):
        return {key: on_cpu(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(on_cpu(each) for each in value)
    return value


def copied(value: Any, room: Any = None, known: dict[Any, torch.Tensor] | None = None) -> Any:
    """The same structure with tensors of its own, in the memory of an earlier copy where that fits.

    What was one tensor in two places is so in the copy.
    """
    known = {} if known is None else known
    if isinstance(value, torch.Tensor):
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else object()
        if place not in known:
            fits = isinstance(room, torch.Tensor) and room.shape == value.shape and room.dtype == value.dtype
            known[place] = room.copy_(value) if fits else value.detach().clone()
        return known[place]
    if isinstance(value, dict):
        copy = shallow(value)
        rooms = room if isinstance(room, dict) else {}
        for key, each in value.items():
            copy[key] = copied(each, rooms.get(key), known)
        return copy
    if isinstance(value, (list, tuple)):
        there = room if isinstance(room, (list, tuple)) and len(room) == len(value) else [None] * len(value)
        return type(value)(copied(each, one, known) for each, one in zip(value, there, strict=True))
    return value
