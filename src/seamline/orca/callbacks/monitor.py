"""Whether a watched number got better."""

from __future__ import annotations

import math
import re
from typing import Literal

from seamline.core.run import Run

Mode = Literal["min", "max", "auto"]
_MORE_IS_BETTER = {"acc", "accuracy", "auc", "auroc", "f1", "precision", "recall", "r2", "score", "iou", "dice", "ndcg"}
_LESS_IS_BETTER = {"loss", "error", "mae", "mse", "rmse", "mape", "brier", "perplexity", "distance"}


class Monitor:
    """The best value of one entry of ``run.logs`` so far."""

    def __init__(self, name: str, mode: Mode = "auto", min_delta: float = 0.0) -> None:
        if mode not in ("min", "max", "auto"):
            raise ValueError(f"no mode {mode!r}; there are 'min', 'max' and 'auto'")
        if mode == "auto":
            words = set(re.split(r"[^a-z0-9]+", name.lower()))
            mode = "max" if words & _MORE_IS_BETTER and not words & _LESS_IS_BETTER else "min"
        self.name = name
        self.sign = 1.0 if mode == "max" else -1.0
        self.min_delta = abs(min_delta)
        self.best: float | None = None

    def improved(self, run: Run) -> bool:
        """Enter this epoch's value; true if it is the best so far. NaN never is."""
        if self.name not in run.logs:
            raise ValueError(
                f"nothing named {self.name!r} to monitor; this run logs {', '.join(map(repr, run.logs))}"
                + (". Give validation_data for val_ entries" if self.name.startswith("val_") else "")
            )
        value = run.logs[self.name]
        if math.isnan(value):
            return False
        better = self.best is None or self.sign * (value - self.best) > self.min_delta
        if better:
            self.best = value
        return better
