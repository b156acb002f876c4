"""The report as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seamline.core.errors import UnavailableError

if TYPE_CHECKING:
    from seamline.nano.inference.report import Report


def draw(report: Report, path: Path) -> None:
    """Latency against score, or against distance where there is no metric."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnavailableError.needs("matplotlib", "inference") from None
    scored = report.original.score is not None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for trial in report.trials:
        worth = trial.score if scored else trial.distance
        if trial.timing is None or worth is None:
            continue
        chosen = trial.status == "original" or report.rejected(trial) is None
        axes.scatter(trial.timing.latency_ms, worth, color="tab:blue" if chosen else "lightgray", zorder=2)
        axes.annotate(
            trial.name, (trial.timing.latency_ms, worth), xytext=(5, 3), textcoords="offset points", fontsize=8
        )
    axes.set_xlabel("latency, ms (less is faster)")
    axes.set_ylabel("score" if scored else "distance from the original's answers")
    axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.set_title("Ways to serve the model; grey ones are slower or too far off")
    figure.savefig(path, dpi=120)
