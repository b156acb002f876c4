"""What a LightningModule logs: numbers, averaged over rows, and torchmetrics, computed over all workers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seamline.core.mean import Mean, Numbers
from seamline.frameworks.torch.metrics import over_all
from seamline.frameworks.torch.own_step import number_of
from seamline.frameworks.torch.world import TorchWorld


class LogBook:
    """Takes the place of ``self.log``; what one step logs is a page."""

    def __init__(self) -> None:
        self._page: dict[str, Any] = {}
        self._means = Numbers()
        self._metrics: dict[str, Any] = {}

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: Any = "mean",
        **_: Any,
    ) -> None:
        """Every number becomes the mean over the rows of the epoch, on however many workers they were."""
        if isinstance(value, _metric_kinds()):
            self._metrics[name] = value
            return
        if reduce_fx not in ("mean", torch.mean):
            raise ValueError(f"{name!r} is logged with reduce_fx={reduce_fx!r}, and numbers are averaged; log a metric")
        self._page[name] = number_of(value, name)

    def log_dict(self, dictionary: Mapping[str, Any], *args: Any, **options: Any) -> None:
        for name, value in dictionary.items():
            self.log(name, value, *args, **options)

    def open(self) -> None:
        """Begin a page; what was on the last one is dropped."""
        self._page = {}

    def close(self) -> dict[str, Any]:
        """The numbers of the page."""
        page, self._page = self._page, {}
        return page

    def keep(self, rows: float) -> None:
        """Close the page and add it to the means, for so many rows."""
        self._means.add({name: Mean(number * rows, rows) for name, number in self.close().items()})

    def results(self, world: TorchWorld) -> dict[str, float]:
        """Means and metrics over all workers, with what is on the open page; afterwards the book is empty."""
        self.keep(1.0)
        means, self._means = self._means, Numbers()
        metrics, self._metrics = self._metrics, {}
        everyone = world.all_gather((means.on_host(), list(metrics)))
        total = Numbers()
        for numbers, _ in everyone:
            total.add(numbers)
        scores = total.averages()
        for name in dict.fromkeys(name for _, names in everyone for name in names):
            seen = [rank for rank, (_, names) in enumerate(everyone) if name in names]
            scores[name] = over_all(metrics.get(name), name, seen, world)
        for metric in metrics.values():
            metric.reset()
        return scores


def metric_states(model: nn.Module) -> list[tuple[Any, dict[str, Any]]]:
    """What every metric within a model has seen so far."""
    metrics: list[Any] = [module for module in model.modules() if isinstance(module, _metric_kinds())]
    names = ("_update_count", "_computed", "_forward_cache")
    return [(m, {name: _copied(getattr(m, name)) for name in (*m._defaults, *names)}) for m in metrics]


def put_back(states: list[tuple[Any, dict[str, Any]]]) -> None:
    """Let metrics forget what they have seen since."""
    for metric, values in states:
        for name, value in values.items():
            setattr(metric, name, _copied(value))


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else list(value) if isinstance(value, list) else value


def _metric_kinds() -> tuple[type, ...]:
    torchmetrics = sys.modules.get("torchmetrics")
    return () if torchmetrics is None else (torchmetrics.Metric,)
