"""TFRecord files, read without TensorFlow."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from seamline.core.errors import DataError, UnavailableError
from seamline.orca.data.example import Example, parse
from seamline.orca.data.files import File, Paths, StorageOptions, find_files
from seamline.orca.data.pictures import DamagedFileError, objects
from seamline.orca.data.pieces import Piece, share
from seamline.orca.data.sharing import number_of_shards
from seamline.orca.xshards import XShards

SUFFIXES = (".tfrecord", ".tfrecords", ".record")

_LENGTH = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def read_tfrecord(
    path: Paths,
    *,
    features: Mapping[str, tuple[int, ...] | None] | None = None,
    verify: bool = True,
    num_shards: int | None = None,
    storage_options: StorageOptions = None,
) -> XShards:
    """Files of ``tf.train.Example`` records.

    With ``features``, names and shapes, a shard is a dict of arrays: ``()`` is one value in each record, ``(28, 28)``
    as many as that takes, and ``None`` any number, which gives an array of arrays. Without, a shard is a list of dicts
    as the records have them. Checksums are compared unless ``verify=False``, which needs the extra ``tfrecord``.
    """
    if verify and find_spec("google_crc32c") is None:
        advice = "or read without comparing checksums: verify=False"
        raise UnavailableError(f"{UnavailableError.needs('google_crc32c', 'tfrecord')}, {advice}")
    files = find_files(path, SUFFIXES, storage_options)
    count = number_of_shards(num_shards, sum(file.size for file in files))
    shares = share(files, count, lambda file: None if file.compressed else Framing.of(file))
    return XShards.from_items(shares, _Load(features, verify))


@dataclass(frozen=True, slots=True)
class Framing:
    """Where the records of a file start, so that it can be cut there."""

    starts: Sequence[int] = field(repr=False)
    head: bytes = b""

    @classmethod
    def of(cls, file: File) -> Framing:
        """Hop from length to length; of the data itself nothing is read."""
        starts, position = [], 0
        with file.open() as stream:
            while len(header := stream.read(_LENGTH.size)) == _LENGTH.size:
                starts.append(position)
                position += _LENGTH.size + _LENGTH.unpack(header)[0] + _CHECKSUM.size
                stream.seek(position)
        return cls(starts)

    def row_start(self, file: File, position: int) -> int:
        following = int(np.searchsorted(self.starts, position))
        return self.starts[following] if following < len(self.starts) else file.size


def records(piece: Piece, verify: bool) -> Iterator[bytes]:
    """The records of a piece; a checksum that differs, or a record that is cut off, is an error with its place."""
    with piece.open() as raw:
        stream = io.BytesIO(piece.read("infer")) if piece.file.compressed else raw
        position = piece.start
        while header := stream.read(_LENGTH.size):
            where = f"the record at byte {position} of {piece.file.name}"
            if len(header) < _LENGTH.size:
                raise DamagedFileError(f"{where} is cut off")
            size, checksum = _LENGTH.unpack(header)
            if verify and _masked(header[:8]) != checksum:
                raise DamagedFileError(f"{where} is damaged, or no TFRecord: its length has another checksum")
            data, end = stream.read(size), stream.read(_CHECKSUM.size)
            if len(data) < size or len(end) < _CHECKSUM.size:
                raise DamagedFileError(f"{where} is cut off")
            if verify and _masked(data) != _CHECKSUM.unpack(end)[0]:
                raise DamagedFileError(f"{where} is damaged: its data has another checksum")
            yield data
            position += _LENGTH.size + size + _CHECKSUM.size


def _masked(data: bytes) -> int:
    """CRC-32C in the disguise in which TFRecord keeps it."""
    import google_crc32c  # type: ignore[import-not-found,unused-ignore]

    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class _Load:
    features: Mapping[str, tuple[int, ...] | None] | None
    verify: bool

    def __call__(self, pieces: Sequence[Piece]) -> Any:
        examples = [parse(data) for piece in pieces for data in records(piece, self.verify)]
        if self.features is None:
            return examples
        return {name: _column(examples, name, shape) for name, shape in self.features.items()}


def _column(examples: Sequence[Example], name: str, shape: tuple[int, ...] | None) -> Any:
    for example in examples:
        if name not in example:
            raise DataError(f"a record has no feature {name!r}; it has {', '.join(map(repr, example)) or 'none'}")
    values = [example[name] for example in examples]
    if shape is None:
        return objects(values)
    size = int(np.prod(shape))
    for value in values:
        if len(value) != size:
            raise DataError(
                f"a record has {len(value)} values of {name!r}, but shape {shape} takes {size}; "
                "features={..., " + repr(name) + ": None} takes any number"
            )
    if not values:
        return np.empty((0, *shape))
    flat = [item for value in values for item in value] if isinstance(values[0], list) else None
    array = np.concatenate(values) if flat is None else objects(flat)
    return array.reshape(len(values), *shape)
