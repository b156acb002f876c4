"""How many rows an object has, whatever it is made of."""

from __future__ import annotations

from typing import Any

from seamline.core import tree
from seamline.core.errors import RowsError


def count(value: Any) -> int | None:
    """The rows of a table, an array, a list of items, or a nest of arrays; ``None`` where there is no such thing.

    ``RowsError`` where the parts of a nest have different numbers of rows.
    """
    if is_nest(value):
        counts = {path: _of_leaf(leaf) for path, leaf in tree.paths(value)}
        numbers = set(counts.values())
        if len(numbers) > 1:
            told = ", ".join(f"{path.removeprefix('.') or 'it'}: {number}" for path, number in counts.items())
            raise RowsError(f"the parts of a shard have different numbers of rows ({told}); give all as many")
        return numbers.pop() if numbers else None
    if isinstance(value, list):
        return len(value)
    return _of_leaf(value)


def is_nest(value: Any) -> bool:
    """Whether this is a dict, list or tuple with nothing but arrays or tables at its leaves."""
    return isinstance(value, (dict, list, tuple)) and len(value) > 0 and all(map(has_rows, tree.leaves(value)))


def has_rows(value: Any) -> bool:
    """Whether this is an array or a table."""
    shape = getattr(value, "shape", None)
    return isinstance(shape, tuple) and len(shape) > 0


def _of_leaf(value: Any) -> int | None:
    return int(value.shape[0]) if has_rows(value) else None
