"""Keep the best model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seamline.core import place
from seamline.core.events import Callback
from seamline.core.run import Run
from seamline.orca.callbacks.monitor import Mode, Monitor


class ModelCheckpoint(Callback):
    """Save the model to ``path`` whenever ``monitor`` is the best so far, or after every epoch.

    With ``{epoch}`` or ``{step}`` in ``path`` each save has its own folder. ``Estimator.load(path)`` reads it back.
    Validations within an epoch, of ``fit(validate_every=...)``, are looked at too if ``monitor`` is among their scores.
    """

    def __init__(
        self, path: str | Path, *, monitor: str = "val_loss", mode: Mode = "auto", best_only: bool = True
    ) -> None:
        self.path = str(place.at(path))
        self.monitor = Monitor(monitor, mode)
        self.best_only = best_only
        self.saved: str | None = None

    def on_validation(self, run: Run) -> None:
        if self.best_only and self.monitor.name in run.logs and self.monitor.improved(run):
            self._save(run)

    def on_epoch_end(self, run: Run) -> None:
        if not self.best_only or self.monitor.improved(run):
            self._save(run)

    def _save(self, run: Run) -> None:
        self.saved = self.path.format(epoch=run.epoch + 1, step=run.step)
        run.save(self.saved)

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.monitor.best, "saved": self.saved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.monitor.best, self.saved = state["best"], state["saved"]
