"""Objects on their way through Ray's object store: the pickle, and beside it the large arrays, which are not copied."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from seamline.core import pickling

_SMALL = 64 * 1024
"""Arrays below this size travel inside the pickle."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A pickle of ours, so that the driver's own classes come back as themselves; Ray's would make copies of them."""

    body: bytes
    arrays: tuple[Any, ...]
    """As they are, or where they are in the object store."""

    @classmethod
    def of(cls, value: object, what: str) -> Parcel:
        arrays: list[Bytes] = []

        def keep_inside(buffer: pickle.PickleBuffer) -> bool:
            raw = np.frombuffer(buffer.raw(), np.uint8)
            if raw.nbytes >= _SMALL:
                arrays.append(raw)
            return raw.nbytes < _SMALL

        return cls(pickling.dumps(value, what, on_buffer=keep_inside), tuple(arrays))

    def open(self, *, shared: bool = False) -> Any:
        """The object; its arrays are its own, or read-only views of the object store if ``shared``."""
        arrays = [ray.get(each) if isinstance(each, ray.ObjectRef) else each for each in self.arrays]
        return pickle.loads(self.body, buffers=arrays if shared else [array.copy() for array in arrays])


def stored(parcels: Sequence[Parcel]) -> list[Parcel]:
    """The same with their arrays in the object store, once each, however many of the parcels hold them."""
    refs: dict[tuple[int, int], Any] = {}

    def put(array: Bytes) -> Any:
        key = int(array.ctypes.data), array.nbytes
        if key not in refs:
            refs[key] = ray.put(array)
        return refs[key]

    return [Parcel(parcel.body, tuple(map(put, parcel.arrays))) for parcel in parcels]
