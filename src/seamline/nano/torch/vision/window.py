"""Which pixels of a picture it takes to make a part of it, resized, without the rest.

Torch resizes a whole picture: it takes no place to begin at. The pixels from a row on are a picture too, but its grid
is that of the whole one only if a new row begins exactly there. So a part begins at the last new row before it of which
that is true, or nearly so, and what comes too early is dropped. The same holds for columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

NEAR = 1 / 50
"""By how much of a new pixel a part may be shifted against the whole."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a picture that is resized: how many pixels it has and how many new ones it gets.

    ``extent`` is how many of the old ones the picture really has, if the last one is there in part. ``radius`` is how
    far the filter reaches around the centre of a new pixel: in new pixels, or in old ones where the picture grows.
    """

    old: int
    new: int
    extent: float
    radius: int


@dataclass(frozen=True, slots=True)
class Span:
    """What is made along an axis: the old pixels from ``start`` to ``stop`` become ``count`` new ones, of which the
    part begins after the first ``early`` ones; ``step`` is how many old ones there are to a new one.
    """

    start: int
    stop: int
    count: int
    early: int
    step: float


@lru_cache(maxsize=4096)
def span(axis: Axis, first: int, length: int) -> Span:
    """What it takes to make ``length`` new pixels from ``first`` on."""
    step = axis.extent / axis.new
    reach = axis.radius * max(step, 1.0)
    latest = first - math.ceil(reach / step - 0.5)  # a filter of the first pixels would miss what was left out
    origin = next((new for new in range(latest, 0, -1) if _off_grid(new * step) <= NEAR * step), 0)
    start, stop = round(origin * step), min(math.ceil((first + length - 0.5) * step + reach), axis.old)
    early = first - origin
    if stop - start == early + length:  # torch takes that for a picture that keeps its size, whatever the step
        return Span(0, axis.old, axis.new, first, step)
    middle = early + length / 2  # which lies exactly where it does in the whole, so that the ends are off by the least
    return Span(start, stop, early + length, early, step + (origin * step - start) / middle)


def _off_grid(place: float) -> float:
    return abs(place - round(place))
