"""Stop when a number has not got better for a while."""

from __future__ import annotations

from typing import Any

from seamline.core.events import Callback
from seamline.core.run import Run
from seamline.orca.callbacks.monitor import Mode, Monitor


class EarlyStopping(Callback):
    """End the run after ``patience`` epochs without improvement; ``stopped_epoch`` then says which was the last.

    Validations within an epoch, of ``fit(validate_every=...)``, count as well if ``monitor`` is among their scores:
    ``patience`` then counts validations, and the run ends at once.
    """

    def __init__(
        self, monitor: str = "val_loss", *, patience: int = 3, min_delta: float = 0.0, mode: Mode = "auto"
    ) -> None:
        self.monitor = Monitor(monitor, mode, min_delta)
        self.patience = patience
        self.waited = 0
        self.stopped_epoch: int | None = None
        self.looked_at = 0

    def on_validation(self, run: Run) -> None:
        if self.monitor.name in run.logs:
            self._look(run)
            self.looked_at = run.step

    def on_epoch_end(self, run: Run) -> None:
        if run.step != self.looked_at:
            self._look(run)

    def _look(self, run: Run) -> None:
        self.waited = 0 if self.monitor.improved(run) else self.waited + 1
        if self.waited >= self.patience:
            self.stopped_epoch = run.epoch + 1
            run.stop()

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.monitor.best, "waited": self.waited, "stopped_epoch": self.stopped_epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.monitor.best = state["best"]
        self.waited = state["waited"]
        self.stopped_epoch = state["stopped_epoch"]
