"""Nested dicts, lists and tuples of arrays, walked in one way everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """The same structure with ``function`` applied to each leaf; ``None`` stays ``None``."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_leaves(function, value) for value in tree)
    return function(tree)


def leaves(tree: Any) -> Iterator[Any]:
    """Every leaf, in order."""
    if tree is None:
        return
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        yield tree
        return
    for value in tree:
        yield from leaves(value)


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with a name a person recognises, such as ``x['age']`` or ``x[0]``."""
    if tree is None:
        return
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from paths(value, f"{prefix}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        for index, value in enumerate(tree):
            yield from paths(value, f"{prefix}[{index}]")
    else:
        yield prefix, tree


def zip_leaves(join: Callable[[list[Any]], Any], trees: Sequence[Any]) -> Any:
    """One tree whose leaves are ``join`` of the corresponding leaves of ``trees``."""
    first = trees[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {key: zip_leaves(join, [tree[key] for tree in trees]) for key in first}
    if isinstance(first, (list, tuple)):
        parts = [zip_leaves(join, list(column)) for column in zip(*trees, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    return join(list(trees))
