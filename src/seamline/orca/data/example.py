"""``tf.train.Example``, decoded from its bytes.

The message is three levels of one field each around lists of numbers, so that a decoder of its own is shorter than
generated code, needs no protobuf, and takes packed numbers as arrays instead of one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from seamline.core.errors import DataError

Feature: TypeAlias = "list[bytes] | npt.NDArray[np.float32] | npt.NDArray[np.int64]"
Example: TypeAlias = dict[str, Feature]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TEXTS, _FLOATS, _INTEGERS = 1, 2, 3


def parse(data: bytes) -> Example:
    """The features of a record by name, as float32 or int64 arrays or lists of bytes."""
    try:
        entries = [
            entry
            for number, features in _fields(memoryview(data))
            if number == 1
            for inner, entry in _fields(features)
            if inner == 1
        ]
        return dict(_entry(entry) for entry in entries)
    except (IndexError, ValueError, TypeError) as error:
        raise DataError(f"a record is not a tf.train.Example: {error}") from error


def _entry(data: memoryview) -> tuple[str, Feature]:
    found = dict(_fields(data))
    name = bytes(found.get(1, b"")).decode()
    for kind, values in _fields(found.get(2, memoryview(b""))):
        if kind == _TEXTS:
            return name, [bytes(value) for number, value in _fields(values) if number == 1]
        if kind == _FLOATS:
            return name, _joined([np.frombuffer(value, "<f4") for _, value in _fields(values)], np.float32)
        if kind == _INTEGERS:
            return name, _joined([_varints(value) for _, value in _fields(values)], np.int64)
    return name, []


def _joined(parts: list[npt.NDArray[Any]], dtype: type[Any]) -> npt.NDArray[Any]:
    return np.concatenate(parts).astype(dtype, copy=False) if parts else np.empty(0, dtype)


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and bytes of each field of a message; a lone number is its bytes, as in a packed list of one."""
    position, end = 0, len(data)
    while position < end:
        key, position = _varint(data, position)
        wire = key & 7
        start = position
        if wire == _BYTES:
            size, start = _varint(data, position)
            position = start + size
        elif wire == _VARINT:
            _, position = _varint(data, position)
        elif wire in (_FIXED32, _FIXED64):
            position += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"there is no wire type {wire}")
        if position > end:
            raise ValueError("a field is longer than its message")
        yield key >> 3, data[start:position]


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _varints(data: memoryview) -> npt.NDArray[np.int64]:
    """Packed numbers of seven bits a byte, all at once."""
    raw = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(raw < 0x80)
    if len(ends) == len(raw):
        return raw.astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    places = np.arange(len(raw)) - np.repeat(starts, ends - starts + 1)
    parts = (raw & 0x7F).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.add.reduceat(parts, starts).view(np.int64)
