"""What ``configure_optimizers`` of a LightningModule returns, in the forms that it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from seamline.frameworks.torch.lightning.log import LogBook
from seamline.frameworks.torch.lightning.module import attached
from seamline.frameworks.torch.lightning.trainer import StandIn
from seamline.frameworks.torch.schedule import Schedule


def configured(module: Any, trainer: StandIn) -> tuple[Optimizer, Schedule]:
    """The module's only optimizer, and what changes its learning rate."""
    with attached(module, trainer, LogBook()):
        returned = module.configure_optimizers()
    name = f"configure_optimizers of {type(module).__name__}"
    optimizers, schedulers, monitor = _apart(returned)
    if len(optimizers) != 1 or len(schedulers) > 1:
        raise ValueError(
            f"{name} gives {len(optimizers)} optimizers and {len(schedulers)} schedulers, and this loop works with one "
            "of each; train such a module with seamline.nano.torch.Trainer"
        )
    optimizer = optimizers[0]
    if not isinstance(optimizer, Optimizer) or isinstance(optimizer, LBFGS):
        raise TypeError(f"{name} gives {type(optimizer).__name__}, which this loop cannot use; take Adam or SGD")
    return optimizer, _schedule(schedulers[0], monitor, name) if schedulers else Schedule()


def _apart(returned: Any) -> tuple[list[Any], list[Any], str | None]:
    """Optimizers, schedulers and what a scheduler watches."""
    if isinstance(returned, Mapping):
        scheduler = returned.get("lr_scheduler")
        return [returned["optimizer"]], [] if scheduler is None else [scheduler], returned.get("monitor")
    if isinstance(returned, (list, tuple)):
        if len(returned) == 2 and all(isinstance(part, (list, tuple)) for part in returned):
            return list(returned[0]), list(returned[1]), None
        if len(returned) == 1:
            return _apart(returned[0])
        return list(returned), [], None
    return [] if returned is None else [returned], [], None


def _schedule(given: Any, monitor: str | None, name: str) -> Schedule:
    said = given if isinstance(given, Mapping) else {"scheduler": given}
    scheduler, every, frequency = said["scheduler"], said.get("interval", "epoch"), said.get("frequency", 1)
    monitor = said.get("monitor", monitor)
    if not isinstance(scheduler, (LRScheduler, ReduceLROnPlateau)):
        raise TypeError(f"{name} gives {type(scheduler).__name__}, not a learning-rate scheduler of torch")
    if every not in ("epoch", "step"):
        raise ValueError(f"{name} gives a scheduler with interval={every!r}; there are 'epoch' and 'step'")
    if every == "step" and (frequency != 1 or isinstance(scheduler, ReduceLROnPlateau)):
        raise ValueError(f"{name} gives a scheduler that does not move with every step; take interval='epoch'")
    if isinstance(scheduler, ReduceLROnPlateau) and monitor is None:
        raise ValueError(f"{name} gives ReduceLROnPlateau without 'monitor'; say what it watches")
    return Schedule(scheduler, every, frequency, monitor if isinstance(scheduler, ReduceLROnPlateau) else None)
