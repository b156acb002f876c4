"""Sending code and data to the workers, with an error that names what cannot travel."""

from __future__ import annotations

import functools
import io
import pickle
from collections import ChainMap
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import cloudpickle

from seamline.core.errors import UnpicklableError

_reducers: dict[type, Callable[[Any], Any]] = {}


class _BufferPickler(cloudpickle.Pickler):  # type: ignore[misc]
    dispatch_table: ClassVar[Any] = ChainMap(_reducers, cloudpickle.Pickler.dispatch_table)


def reduce_with(kind: type, reducer: Callable[[Any], Any]) -> None:
    """Let objects of exactly this type travel in another form where buffers are taken apart; see ``dumps``."""
    _reducers[kind] = reducer


def dumps(value: object, what: str, on_buffer: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """Pickle by value whatever the workers could not import; ``what`` names it in errors.

    ``on_buffer`` receives large contiguous arrays instead of having them copied into the result.
    """
    try:
        out = io.BytesIO()
        kind = cloudpickle.Pickler if on_buffer is None else _BufferPickler
        kind(out, protocol=5, buffer_callback=on_buffer).dump(value)
        return out.getvalue()
    except UnpicklableError:  # an object that knows why it cannot travel
        raise
    except Exception as error:
        raise UnpicklableError(f"{what} cannot be sent between processes: {_blame(value, error)}") from error


def _blame(value: object, error: Exception) -> str:
    name, culprit = "", error
    parts: Iterator[tuple[str, object]] = iter([("", value)])
    for _ in range(8):  # deep enough for a closure in a partial in a dataclass
        found = next(((n, v, e) for n, v in parts if (e := _failure(v))), None)
        if found is None:
            break
        name = ".".join(filter(None, (name, found[0])))
        culprit = found[2]
        parts = _parts(found[1])
    held = f" (held by {name!r}; create it inside the function that uses it)" if name else ""
    return f"{culprit}{held}"


def _failure(value: object) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The named things that an object holds on to."""
    if isinstance(value, functools.partial):
        yield from ((f"argument {i}", part) for i, part in enumerate(value.args))
        yield from value.keywords.items()
        yield "", value.func
    elif isinstance(value, (list, tuple)):
        yield from ((f"item {i}", part) for i, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif hasattr(value, "__code__"):
        code = value.__code__
        cells = getattr(value, "__closure__", None) or ()
        yield from zip(code.co_freevars, (cell.cell_contents for cell in cells), strict=False)
        scope = getattr(value, "__globals__", {})
        yield from ((global_, scope[global_]) for global_ in code.co_names if global_ in scope)
    elif hasattr(value, "__slots__") and hasattr(value, "__dataclass_fields__"):
        yield from ((field, getattr(value, field)) for field in value.__dataclass_fields__)
    else:
        yield from getattr(value, "__dict__", {}).items()
