"""Records of images, arrays and scalars in Parquet files, with what they are written beside them."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from seamline.core.errors import SeamlineError
from seamline.core.remote import file_system
from seamline.orca.data import pictures
from seamline.orca.data.files import File, StorageOptions, find_files, joined
from seamline.orca.data.pictures import DamagedFileError, objects
from seamline.orca.data.sharing import even_shares, number_of_shards
from seamline.orca.xshards import XShards

SCHEMA = "_schema.json"


class FeatureType(str, Enum):
    """What one value of a record is."""

    IMAGE = "image"
    NDARRAY = "ndarray"
    SCALAR = "scalar"


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One feature of every record.

    ``dtype`` is NumPy's name for numbers, or ``"string"`` or ``"bytes"``. An array has this ``shape`` in every record,
    or any shape if it is ``None``. An image is given as a path or as the bytes of an image file, and read as RGB.
    """

    feature_type: FeatureType | str
    dtype: str = "uint8"
    shape: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "feature_type", FeatureType(self.feature_type))
        object.__setattr__(self, "shape", None if self.shape is None else tuple(self.shape))

    @property
    def arrow_type(self) -> pa.DataType:
        if self.feature_type is FeatureType.IMAGE or (self.feature_type is FeatureType.NDARRAY and self.shape is None):
            return pa.binary()
        if self.feature_type is FeatureType.NDARRAY:
            return pa.list_(pa.from_numpy_dtype(np.dtype(self.dtype)), int(np.prod(self.shape or ())))
        texts = {"string": pa.string(), "bytes": pa.binary()}
        return texts.get(self.dtype) or pa.from_numpy_dtype(np.dtype(self.dtype))

    def column(self, name: str, values: Sequence[Any]) -> pa.Array:
        """The values of a block of records, to be written."""
        if self.feature_type is FeatureType.IMAGE:
            return pa.array([_image_bytes(value) for value in values], pa.binary())
        if self.feature_type is FeatureType.SCALAR:
            return pa.array(values, self.arrow_type)
        arrays = [np.asarray(value, self.dtype) for value in values]
        if self.shape is None:
            return pa.array([_npy(array) for array in arrays], pa.binary())
        for array in arrays:
            if array.shape != self.shape:
                raise ValueError(
                    f"a record has {name!r} of shape {array.shape}, but the schema says {self.shape}; "
                    "shape=None takes any shape"
                )
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), self.arrow_type.list_size)

    def values(self, name: str, column: pa.ChunkedArray) -> npt.NDArray[Any]:
        """The values of some records, as they were given."""
        if self.feature_type is FeatureType.IMAGE:
            return objects([pictures.decoded(data, f"an image of {name!r}") for data in column.to_pylist()])
        if self.feature_type is FeatureType.SCALAR:
            return objects(column.to_pylist()) if self.dtype in ("string", "bytes") else column.to_numpy()
        if self.shape is None:
            return objects([np.load(io.BytesIO(data), allow_pickle=False) for data in column.to_pylist()])
        flat: npt.NDArray[Any] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(len(column), *self.shape)


class ParquetDataset:
    """Records on disk: ``write`` takes them one by one, ``read`` gives shards of arrays."""

    @staticmethod
    def write(
        path: str | os.PathLike[str],
        generator: Iterable[Mapping[str, Any]],
        schema: Mapping[str, SchemaField],
        block_size: int = 1000,
        write_mode: Literal["overwrite", "error"] = "overwrite",
        *,
        storage_options: StorageOptions = None,
    ) -> None:
        """Write records, dicts with the names of ``schema``, into a folder: a file for every ``block_size`` of them.

        No more than one block is in memory. The schema is written last, so that an unfinished folder is not taken for
        a finished one. Only a folder that is empty or was written here is written over.
        """
        folder = os.fspath(path)
        fs, root = file_system(folder, dict(storage_options or {}))
        _make_room(fs, root, folder, write_mode)
        records = iter(generator)
        number = 0
        while block := list(islice(records, block_size)):
            table = pa.table({name: field.column(name, _named(block, name)) for name, field in schema.items()})
            with fs.open(joined(root, f"part-{number:05d}.parquet"), "wb") as stream:
                pq.write_table(table, stream)
            number += 1
        fields = {name: asdict(field) for name, field in schema.items()}
        with fs.open(joined(root, SCHEMA), "wb") as stream:
            stream.write(json.dumps({"features": fields}, indent=1).encode())

    @staticmethod
    def read(
        path: str | os.PathLike[str], *, num_shards: int | None = None, storage_options: StorageOptions = None
    ) -> XShards:
        """What ``write`` has written, as shards of ``{name: array}``; where shapes may differ, arrays of arrays."""
        folder = os.fspath(path)
        try:
            (notes,) = find_files(joined(folder, SCHEMA), storage_options=storage_options)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{folder} has no {SCHEMA}: it was not written by ParquetDataset.write, or not to its end"
            ) from error
        fields = json.loads(notes.read_all())["features"]
        schema = {name: SchemaField(**field) for name, field in fields.items()}
        if any(field.feature_type is FeatureType.IMAGE for field in schema.values()):
            pictures.check_installed()
        files = [*_parts(folder, storage_options)]
        shares = even_shares(files, [file.size for file in files], number_of_shards(num_shards))
        return XShards.from_items(shares, _Load(schema))

    read_as_xshards = read


@dataclass(frozen=True, slots=True)
class _Load:
    schema: Mapping[str, SchemaField]

    def __call__(self, files: Sequence[File]) -> dict[str, Any]:
        tables = [_table(file) for file in files]
        empty = pa.schema([(name, field.arrow_type) for name, field in self.schema.items()]).empty_table()
        table = pa.concat_tables(tables) if tables else empty
        return {name: field.values(name, table.column(name)) for name, field in self.schema.items()}


def _table(file: File) -> pa.Table:
    try:
        with file.open() as stream:
            return pq.read_table(stream)
    except pa.ArrowInvalid as error:
        raise DamagedFileError(f"{file.name} is not a Parquet file, or is damaged: {error}") from error


def _parts(folder: str, storage_options: StorageOptions) -> Iterator[File]:
    try:
        yield from find_files(folder, (".parquet",), storage_options)
    except FileNotFoundError:
        return  # no records were written


def _make_room(fs: Any, root: str, folder: str, write_mode: str) -> None:
    if write_mode not in ("overwrite", "error"):
        raise ValueError(f'write_mode is "overwrite" or "error", but got {write_mode!r}')
    there = fs.ls(root, detail=False) if fs.isdir(root) else []
    if there and write_mode == "error":
        raise FileExistsError(f'{folder} is not empty; choose another, or write_mode="overwrite"')
    parts = [name for name in there if Path(name).match("part-*.parquet") or Path(name).name == SCHEMA]
    if len(parts) < len(there):
        raise SeamlineError(f"{folder} holds files that ParquetDataset.write has not written; choose another folder")
    for name in sorted(parts, key=lambda name: Path(name).name != SCHEMA):
        fs.rm_file(name)
    fs.makedirs(root, exist_ok=True)


def _named(records: Sequence[Mapping[str, Any]], name: str) -> list[Any]:
    for record in records:
        if name not in record:
            raise ValueError(f"a record has no {name!r}, which the schema has; it has {', '.join(map(repr, record))}")
    return [record[name] for record in records]


def _image_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (str, os.PathLike)):
        return Path(value).read_bytes()
    raise TypeError(f"an image is a path or the bytes of a file, but got {type(value).__name__}; arrays are NDARRAY")


def _npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    return stream.getvalue()
