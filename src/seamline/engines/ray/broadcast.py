"""Values that tasks read from the object store of their own machine."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic

import ray

from seamline.core.engine import Value
from seamline.engines.ray.parcel import Parcel

_refs: dict[str, Any] = {}
"""Where the values are that this process knows of, by name; an entry keeps its value in the store."""
_values: dict[str, Any] = {}
"""Those that this process has read."""


@dataclass(frozen=True, slots=True)
class RayBroadcast(Generic[Value]):
    """A name; where its value is travels with every task, so that Ray keeps account of who may still ask for it."""

    name: str

    @property
    def value(self) -> Value:
        if self.name not in _values:
            if self.name not in _refs:
                raise ValueError("what should be read here was released, or belongs to another driver")
            _values[self.name] = ray.get(_refs[self.name]).open(shared=True)
        value: Value = _values[self.name]
        return value

    @property
    def released(self) -> bool:
        return self.name not in _refs

    def release(self) -> None:
        _refs.pop(self.name, None)
        _values.pop(self.name, None)


@dataclass(frozen=True, slots=True)
class Known:
    """The broadcasts that a task may ask for."""

    refs: Mapping[str, Any]

    @classmethod
    def now(cls) -> Known:
        return cls(dict(_refs))

    def install(self) -> None:
        """Know these and forget all others, so that what the driver has released is given back here too."""
        for gone in [name for name in _refs if name not in self.refs]:
            del _refs[gone]
            _values.pop(gone, None)
        _refs.update(self.refs)


def forget_all() -> None:
    """The Ray that held them is gone."""
    _refs.clear()
    _values.clear()


def share(value: Value) -> RayBroadcast[Value]:
    handle: RayBroadcast[Value] = RayBroadcast(uuid.uuid4().hex)
    _refs[handle.name] = ray.put(Parcel.of(value, "the value"))
    return handle
