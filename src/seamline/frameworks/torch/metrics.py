"""Metrics over the rows of all workers: plain functions, and torchmetrics."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch.distributed as dist

from seamline.frameworks.torch.world import TorchWorld


class Meter(Protocol):
    """One metric in the making."""

    def update(self, outputs: Any, targets: Any, rows: int) -> None: ...

    def result(self, world: TorchWorld) -> float: ...


class FunctionMeter:
    """The mean of a function of outputs and targets, each batch weighing as many rows as it has."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self._function = function
        self._total, self._rows = 0.0, 0

    def update(self, outputs: Any, targets: Any, rows: int) -> None:
        self._total += _number(self._function(outputs, targets), _name(self._function)) * rows
        self._rows += rows

    def result(self, world: TorchWorld) -> float:
        rows = world.sum(self._rows)
        total = world.sum(self._total)
        return total / rows if rows else float("nan")


class TorchMetricsMeter:
    """A torchmetrics metric, computed over the states of all workers that have seen rows."""

    def __init__(self, metric: Any, world: TorchWorld) -> None:
        self._metric = copy.deepcopy(metric).to(world.device)
        self._metric.reset()
        self._seen = False

    def update(self, outputs: Any, targets: Any, rows: int) -> None:
        self._metric.update(outputs, targets)
        self._seen = True

    def result(self, world: TorchWorld) -> float:
        seen = [rank for rank, has in enumerate(world.all_gather(self._seen)) if has]
        return over_all(self._metric, type(self._metric).__name__, seen, world)


def over_all(metric: Any, name: str, seen: list[int], world: TorchWorld) -> float:
    """A torchmetrics metric over the states of those workers which have seen rows; others need not have it."""
    if not seen:
        return float("nan")
    # A metric without any rows has no state of the right shape to gather.
    group = dist.new_group(seen) if len(seen) < world.size else None
    value = None
    if world.rank in seen:
        usual, metric.process_group = metric.process_group, group or metric.process_group
        value = _number(metric.compute(), name)
        metric.process_group = usual
    return next(v for v in world.all_gather(value) if v is not None)


class Meters:
    """All metrics of a recipe, by name."""

    def __init__(self, metrics: Any, world: TorchWorld) -> None:
        self._world = world
        self._meters = {name: _meter(metric, world) for name, metric in named(metrics).items()}

    def update(self, outputs: Any, targets: Any, rows: int) -> None:
        for meter in self._meters.values():
            meter.update(outputs, targets, rows)

    def results(self) -> dict[str, float]:
        return {name: meter.result(self._world) for name, meter in self._meters.items()}


def named(metrics: Any) -> dict[str, Any]:
    """One metric, a list of them or a dict with names; a function is called by its own name."""
    if metrics is None:
        return {}
    if isinstance(metrics, Mapping) or type(metrics).__name__ == "MetricCollection":
        pairs = list(metrics.items())
    else:
        several = metrics if isinstance(metrics, (list, tuple)) else [metrics]
        pairs = [(_name(metric), metric) for metric in several]
        doubled = {name for name, _ in pairs if [other for other, _ in pairs].count(name) > 1}
        if doubled:
            raise ValueError(f"several metrics are named {doubled.pop()!r}; give a dict with a name for each")
    for name, metric in pairs:
        if not callable(metric):
            raise TypeError(
                f"metric {name!r} is of type {type(metric).__name__}; "
                "give a function of (outputs, targets) or a torchmetrics metric"
            )
    return dict(pairs)


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"metric {name!r} gave {type(value).__name__} instead of one number ({error})") from error


def _name(metric: Any) -> str:
    return str(getattr(metric, "__name__", None) or type(metric).__name__).lower()


def _meter(metric: Any, world: TorchWorld) -> Meter:
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is not None and isinstance(metric, torchmetrics.Metric):
        return TorchMetricsMeter(metric, world)
    return FunctionMeter(metric)
