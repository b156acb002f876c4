"""A training as a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from seamline.core.errors import UnavailableError
from seamline.core.profile import PARTS, Part
from seamline.orca.profile import Profile

_COLORS: dict[Part, str] = {
    "data": "tab:orange",
    "compute": "tab:blue",
    "communication": "tab:red",
    "other": "lightgray",
}


def draw(history: Sequence[Mapping[str, float]], profile: Profile, path: str | os.PathLike[str] | None) -> Any:
    """Loss, throughput, the time of each worker, and how long others waited for it."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise UnavailableError.needs("matplotlib", "inference") from None
    figure = Figure(figsize=(11, 7), layout="constrained")
    (loss, throughput), (split, waits) = figure.subplots(2, 2)
    _draw_losses(loss, history)
    rows_per_s = [profile.rows_per_s(epoch) for epoch in profile.epochs]
    throughput.plot(profile.epochs, rows_per_s, marker="o")
    throughput.set(title="throughput", xlabel="epoch", ylabel="rows a second, all workers", ylim=_up_to(rows_per_s))
    for axes in (loss, throughput):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    _draw_split(split, profile)
    _draw_waits(waits, profile)
    for axes in (split, waits):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _draw_losses(axes: Any, history: Sequence[Mapping[str, float]]) -> None:
    for name, label in (("loss", "training"), ("val_loss", "validation")):
        known = [(each["epoch"], each[name]) for each in history if name in each]
        if known:
            axes.plot(*zip(*known, strict=True), marker="o", label=label)
    axes.set(title="loss", xlabel="epoch")
    if axes.lines:
        axes.legend()


def _draw_split(axes: Any, profile: Profile) -> None:
    below = [0.0] * len(profile.ranks)
    for part in PARTS:
        seconds = [profile.spent(rank, part) for rank in profile.ranks]
        axes.bar(profile.ranks, seconds, bottom=below, color=_COLORS[part], label=part)
        below = [low + more for low, more in zip(below, seconds, strict=True)]
    axes.set(title="where the time went", xlabel="worker", ylabel="seconds", ylim=_up_to(below))
    axes.legend(loc="upper center", ncols=len(PARTS), fontsize="small")


def _draw_waits(axes: Any, profile: Profile) -> None:
    waited = {each.rank: each for each in profile.stragglers}
    seconds = [waited[rank].waited_s if rank in waited else 0.0 for rank in profile.ranks]
    axes.bar(profile.ranks, seconds, color="tab:red")
    for each in waited.values():
        axes.annotate(each.because, (each.rank, each.waited_s), ha="center", va="bottom")
    title = "stragglers" if waited else "no stragglers"
    axes.set(title=title, xlabel="worker", ylabel="seconds the others waited", ylim=_up_to(seconds))


def _up_to(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis from nothing to the largest, with room for words above it."""
    return 0.0, 1.2 * max(values, default=0.0) or 1.0
