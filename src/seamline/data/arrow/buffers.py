"""Memory that windows are read into, again and again."""

from __future__ import annotations

import sys

from seamline.data.arrow.layout import Arrays, Layout


class Buffers:
    """Arrays for windows of rows; those that nobody looks at any more are used again.

    Fresh memory would have to be faulted in page by page, which can take longer than reading the rows.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._held: list[Arrays] = []

    def take(self, rows: int) -> Arrays:
        """Arrays of this many rows, filled with anything."""
        free = [arrays for arrays in self._held if _unused(arrays)]
        whole = next((arrays for arrays in free if len(arrays[0]) >= rows), None)
        if whole is None:
            self._held = [arrays for arrays in self._held if all(arrays is not other for other in free)]
            free.clear()
            whole = self._layout.empty(rows)
            self._held.append(whole)
        return [array[:rows] for array in whole]


def _unused(arrays: Arrays) -> bool:
    """Whether there is no batch, window or tensor left that shows a part of the arrays."""
    return all(sys.getrefcount(array) == _UNSEEN for array in arrays)


def _references() -> int:
    """What ``_unused`` counts for an array that only a list holds."""
    return next(sys.getrefcount(each) for each in [object()])


_UNSEEN = _references()
