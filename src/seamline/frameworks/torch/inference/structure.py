"""Nested values with slots where tensors were, including records such as dataclasses; as JSON they need no pickle."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from types import SimpleNamespace
from typing import Any

from seamline.core import tree


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor in a structure."""

    number: int


@dataclass(frozen=True, slots=True)
class Record:
    """A dataclass, such as the output of a model, by its parts; ``kind`` is ``module:Name``."""

    kind: str
    parts: dict[str, Any]

    @classmethod
    def of(cls, value: Any) -> Record:
        kind = type(value)
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        return cls(f"{kind.__module__}:{kind.__qualname__}", parts)

    def filled(self, parts: dict[str, Any]) -> Any:
        """The dataclass with other parts; where its module was not imported, an ``Answer`` with the same names."""
        kind = _imported(self.kind)
        if kind is None:
            return Answer(**parts)
        taken = {field.name: parts.pop(field.name) for field in fields(kind) if field.init and field.name in parts}
        made = kind(**taken)
        for name, value in parts.items():  # those that its __init__ does not take
            object.__setattr__(made, name, value)
        return made


class Answer(SimpleNamespace):
    """What a model answers in place of a dataclass that this program does not know: parts by attribute or by name."""

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]


def _imported(kind: str) -> Any:
    """The dataclass of this name, if the program has it; a name in a file must not import anything."""
    module, _, name = kind.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and is_dataclass(found) else None


def is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, (type, Slot, Record))


def opened(value: Any) -> Any:
    """The same value with records as their parts."""
    return _rebuilt(value, lambda leaf: leaf, lambda record: record)


def map_slots(function: Callable[[Slot], Any], structure: Any) -> Any:
    """What a structure stands for: slots by what the function gives, records as what they were."""
    return _rebuilt(
        structure,
        lambda leaf: function(leaf) if isinstance(leaf, Slot) else leaf,
        lambda record: record.filled(dict(record.parts)),
    )


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    return _rebuilt(structure, function, lambda record: record)


def _rebuilt(value: Any, leaf: Callable[[Any], Any], finish: Callable[[Record], Any]) -> Any:
    if value is None:
        return None
    if is_record(value):  # before dicts: some records are both
        value = Record.of(value)
    if isinstance(value, Record):
        return finish(Record(value.kind, {name: _rebuilt(part, leaf, finish) for name, part in value.parts.items()}))
    if isinstance(value, dict):
        return {key: _rebuilt(part, leaf, finish) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_rebuilt(part, leaf, finish) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_rebuilt(part, leaf, finish) for part in value)
    return leaf(value)


def paths(structure: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with a name a person recognises; nothing at all is no leaf."""
    for name, leaf in tree.paths(structure, prefix):
        if isinstance(leaf, Record):
            for part, value in leaf.parts.items():
                yield from paths(value, f"{name}.{part}")
        else:
            yield name, leaf


def to_json(structure: Any) -> Any:
    """A structure as plain JSON; named tuples become tuples."""
    if isinstance(structure, Slot):
        return {"tensor": structure.number}
    if isinstance(structure, Record):
        return {"record": [structure.kind, [[name, to_json(part)] for name, part in structure.parts.items()]]}
    if isinstance(structure, dict):
        return {"dict": [[key, to_json(value)] for key, value in structure.items()]}
    if isinstance(structure, (list, tuple)):
        return {"list" if isinstance(structure, list) else "tuple": [to_json(value) for value in structure]}
    return {"value": structure}


def from_json(saved: Any) -> Any:
    ((kind, content),) = saved.items()
    if kind == "tensor":
        return Slot(content)
    if kind == "record":
        name, parts = content
        return Record(name, {part: from_json(value) for part, value in parts})
    if kind == "dict":
        return {key: from_json(value) for key, value in content}
    if kind in ("list", "tuple"):
        values = [from_json(value) for value in content]
        return values if kind == "list" else tuple(values)
    return content
