"""What was found: every plan with its speed, score and distance, and the choice among them."""

from __future__ import annotations

import html
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from seamline.core.runtime import Plan
from seamline.nano.inference.trial import Trial

WORTH_IT = 1.03
"""A plan has to be faster than the original by this much, or the original is kept."""
MAX_DISTANCE = 0.05

_COLUMNS = ("plan", "status", "latency, ms", "p95, ms", "speed-up", "score", "distance", "size, MB", "")


class Report:
    """Every trial, the original first."""

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        direction: Literal["max", "min"],
        load: Callable[[Trial], Any],
        folder: Any,
        measured: str = "",
    ) -> None:
        self.trials = list(trials)
        self.direction = direction
        self.measured = measured  # what was timed, in words
        self._load = load
        self._folder = folder  # the built plans live as long as the report

    @property
    def original(self) -> Trial:
        return self.trials[0]

    def best(self, *, max_drop: float = 0.01, max_distance: float | None = None) -> tuple[Any, Plan]:
        """The fastest model that keeps the original's score to within ``max_drop``, and its plan.

        Without a metric, answers may differ from the original's by ``max_distance``, by default 5 %. If nothing is
        faster, it is the original itself.
        """
        chosen = self.best_trial(max_drop=max_drop, max_distance=max_distance)
        return self._load(chosen), chosen.plan

    def best_trial(
        self,
        *,
        max_drop: float = 0.01,
        max_distance: float | None = None,
        only: Callable[[Trial], bool] = lambda trial: True,
    ) -> Trial:
        good = [t for t in self.trials[1:] if only(t) and self.rejected(t, max_drop, max_distance) is None]
        # One lucky measurement does not beat those that were compared head to head.
        compared = [trial for trial in good if trial.compared]
        return max(compared or good, key=lambda trial: trial.speedup or 0.0, default=self.original)

    def rejected(self, trial: Trial, max_drop: float = 0.01, max_distance: float | None = None) -> str | None:
        """Why a plan is not a choice; ``None`` if it is one."""
        if trial.status != "good" or trial.speedup is None:
            return trial.reason or trial.status
        if trial.speedup < WORTH_IT:
            return "not faster than the original"
        if trial.score is not None and self.original.score is not None:
            drop = self.original.score - trial.score if self.direction == "max" else trial.score - self.original.score
            if not drop <= max_drop:
                return f"its score {trial.score:.4f} is too far from the original's {self.original.score:.4f}"
            if max_distance is None:
                return None
        limit = MAX_DISTANCE if max_distance is None else max_distance
        if trial.distance is not None and trial.distance > limit:
            return f"its answers are {trial.distance:.1%} away from the original's"
        return None

    def get_model(self, name: str) -> Any:
        """The model of one plan by its name, good or not."""
        found = {trial.name: trial for trial in self.trials if trial.folder is not None or trial.status == "original"}
        if name not in found:
            raise ValueError(f"no plan named {name!r} was built; there are {', '.join(found)}")
        return self._load(found[name])

    # Showing

    def rows(self) -> list[tuple[str, ...]]:
        return [_row(trial, self.rejected(trial)) for trial in self.trials]

    def to_dict(self) -> dict[str, Any]:
        return {
            "direction": self.direction,
            "measured": self.measured,
            "trials": [trial.to_dict() for trial in self.trials],
        }

    def __str__(self) -> str:
        table = Table(*_COLUMNS, caption=escape(self.measured), caption_justify="left")
        for row in self.rows():
            table.add_row(*map(escape, row))
        screen = io.StringIO()
        Console(file=screen, width=150).print(table)
        return screen.getvalue()

    def to_html(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in _COLUMNS)
        cells = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self.rows())
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        caption = f"<caption>{html.escape(self.measured)}</caption>" if self.measured else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    _repr_html_ = to_html

    def plot(self, path: str | Path) -> None:
        """One picture: how fast each plan is, and what its answers are worth."""
        from seamline.nano.inference.picture import draw

        draw(self, Path(path))


def _row(trial: Trial, rejected: str | None) -> tuple[str, ...]:
    timing = trial.timing
    noisy = " (noisy)" if timing and timing.noisy else ""
    return (
        trial.name,
        trial.status,
        f"{timing.latency_ms:.2f}" if timing else "",
        f"{timing.p95_ms:.2f}" if timing else "",
        f"{trial.speedup:.2f}x{noisy}" if trial.speedup else "",
        f"{trial.score:.4f}" if trial.score is not None else "",
        f"{trial.distance:.1e}" if trial.distance is not None else "",
        f"{trial.size_mb:.1f}" if trial.size_mb is not None else "",
        "" if trial.status == "original" else trial.reason or rejected or "",
    )
