"""Each epoch's numbers in files that other tools read."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from seamline.core.errors import UnavailableError
from seamline.core.events import Callback
from seamline.core.run import Run


class CSVLogger(Callback):
    """One row for each epoch; a resumed run goes on in the same file."""

    steers = False

    def __init__(self, path: str | Path) -> None:
        self.path = str(Path(path).absolute())

    def on_fit_begin(self, run: Run) -> None:
        Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._write(run)

    def on_epoch_end(self, run: Run) -> None:
        self._write(run)

    def _write(self, run: Run) -> None:
        # Written whole from the run's history: an epoch that a killed run logged and lost is not there twice.
        names = list(dict.fromkeys(name for epoch in run.history for name in epoch))
        aside = Path(f"{self.path}.writing")
        with aside.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(run.history)
        aside.replace(self.path)


class TensorBoard(Callback):
    """Scalars for TensorBoard: each epoch's numbers and pace, and the loss every ``every_steps`` steps."""

    steers = False

    def __init__(self, log_dir: str | Path, *, every_steps: int = 50) -> None:
        self.log_dir = str(Path(log_dir).absolute())
        self.every_steps = every_steps
        self._writer: Any = None

    def on_fit_begin(self, run: Run) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise UnavailableError.needs("tensorboardX", "tensorboard") from None
        self._writer = SummaryWriter(self.log_dir, purge_step=run.step + 1)

    def on_step_end(self, run: Run) -> None:
        if run.step % self.every_steps == 0:
            self._writer.add_scalar("step/loss", float(run.loss), run.step)

    def on_epoch_end(self, run: Run) -> None:
        for name, value in run.logs.items():
            self._writer.add_scalar(f"epoch/{name}", value, run.step)
        for name, value in run.pace().items():
            self._writer.add_scalar(f"pace/{name}", value, run.step)

    def on_fit_end(self, run: Run) -> None:
        self._writer.close()
        self._writer = None
