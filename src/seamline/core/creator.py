"""Calling functions that make things, with as many arguments as they want."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def call(creator: Callable[..., Any], *offered: Any) -> Any:
    """``creator()`` or ``creator(config)`` or …: the first arguments it can take of those offered.

    Parameters with a default count only when they are the ones that an offered argument is required for.
    """
    return creator(*offered[: _required(creator, len(offered))])


def _required(creator: Callable[..., Any], most: int) -> int:
    try:
        parameters = inspect.signature(creator).parameters.values()
    except ValueError:  # a builtin that does not tell
        return 0
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = sum(p.default is p.empty for p in positional)
    if any(p.default is not p.empty and p.name == "config" for p in positional):
        needed = max(needed, 1 + [p.name for p in positional].index("config"))
    if needed > most:
        raise TypeError(
            f"{getattr(creator, '__name__', creator)} needs {needed} arguments, "
            f"but a creator function gets {most} at most"
        )
    return needed
