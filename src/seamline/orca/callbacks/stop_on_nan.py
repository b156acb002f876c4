"""Stop when the loss is no number any more."""

from __future__ import annotations

import math

from seamline.core.errors import NonFiniteLossError
from seamline.core.events import Callback
from seamline.core.run import Run


class StopOnNaN(Callback):
    """Raise ``NonFiniteLossError`` in the step in which any worker's loss is NaN or infinite."""

    everywhere = True
    steers = False

    def on_step_end(self, run: Run) -> None:
        loss = float(run.loss)
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"the loss is {loss} in epoch {run.epoch + 1}, step {run.epoch_step}, on worker {run.rank}; "
                "try a smaller learning rate or Tuning(clip_norm=1.0), and look for NaN in the data"
            )
