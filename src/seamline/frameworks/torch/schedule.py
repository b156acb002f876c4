"""When a learning rate changes, and by what."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

Scheduler = LRScheduler | ReduceLROnPlateau


@dataclass(frozen=True, slots=True)
class Schedule:
    """A scheduler, if there is one, and whether it moves with steps or with every ``frequency``-th epoch.

    ``monitor`` is the entry of an epoch's record that one on a plateau watches; without it, the validation loss or else
    the loss.
    """

    scheduler: Scheduler | None = None
    every: Literal["epoch", "step"] = "epoch"
    frequency: int = 1
    monitor: str | None = None

    def after_step(self) -> None:
        if self.every == "step":
            self._advance(None)

    def after_epoch(self, logs: Mapping[str, float]) -> None:
        """``logs`` is the record of the epoch."""
        if self.every == "epoch" and int(logs["epoch"]) % self.frequency == 0:
            self._advance(logs)

    def _advance(self, logs: Mapping[str, float] | None) -> None:
        with warnings.catch_warnings():
            # An optimizer that has travelled to a worker is not the object that the scheduler has marked.
            warnings.filterwarnings("ignore", message="Seems like `optimizer.step.*has been overridden")
            if isinstance(self.scheduler, ReduceLROnPlateau):
                if logs is not None:
                    self.scheduler.step(self._watched(logs))
            elif self.scheduler is not None:
                self.scheduler.step()

    def _watched(self, logs: Mapping[str, float]) -> float:
        if self.monitor is None:
            return logs.get("val_loss", logs["loss"])
        if self.monitor not in logs:
            raise ValueError(
                f"the scheduler monitors {self.monitor!r}, which is not logged; this run logs "
                f"{', '.join(map(repr, logs))}"
            )
        return logs[self.monitor]
