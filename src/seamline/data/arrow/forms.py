"""What the values of a column become as numpy arrays: their type and shape, found once, and then whole batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from seamline.core.errors import DataError

Shape = tuple[int, ...]
VECTOR = ("type", "size", "indices", "values")
"""The fields of a vector of ``pyspark.ml.linalg``, dense (type 1) or sparse (type 0)."""
IMAGE = ("origin", "height", "width", "nChannels", "mode", "data")
"""The fields of an image of Spark."""


class Form(Protocol):
    """Turns a column without missing values into an array with one item of ``shape`` for each row."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def shape(self) -> Shape: ...

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        """At most one copy; raises ``Unlike`` for a row that is not like the first."""
        ...


class Unlike(Exception):  # noqa: N818  (it never leaves this package)
    """A row differs in shape from the first; says how, as the end of a sentence about the column."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """One number for each row; ``cast`` is the Arrow type for those that numpy does not know."""

    dtype: np.dtype[Any]
    cast: pa.DataType | None = None
    shape: Shape = ()

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        if self.cast is not None:
            column = column.cast(self.cast)
        values: np.ndarray[Any, Any]
        if not len(column):
            values = np.empty(0, self.dtype)
        elif self.dtype == np.bool_:
            values = column.to_numpy(zero_copy_only=False)
        else:  # not by to_numpy, which imports pandas the first time
            values = np.frombuffer(column.buffers()[1], self.dtype)[column.offset : column.offset + len(column)]
        return values


@dataclass(frozen=True, slots=True)
class Lists:
    """A list of equal length for each row, of numbers or of lists."""

    items: Form
    length: int

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.items.dtype

    @property
    def shape(self) -> Shape:
        return (self.length, *self.items.shape)

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        if not kinds.is_fixed_size_list(column.type):
            _same_length(column.offsets.to_numpy(), self.length, "arrays")
        items = column.flatten()
        if items.null_count:
            raise Unlike("holds arrays with missing values inside; fill them first")
        return self.items.array(items).reshape(len(column), *self.shape)


@dataclass(frozen=True, slots=True)
class Bytes:
    """Equally many bytes for each row."""

    length: int
    dtype: np.dtype[Any] = np.dtype(np.uint8)

    @property
    def shape(self) -> Shape:
        return (self.length,)

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        if column.offset or not kinds.is_large_binary(column.type):
            column = pa.concat_arrays([column]).cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        _same_length(offsets, self.length, "byte strings")
        data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
        return data[offsets[0] : offsets[-1]].reshape(len(column), self.length)


@dataclass(frozen=True, slots=True)
class Images:
    """Spark's images: height, width and channels as they are stored, blue before red."""

    shape: Shape
    dtype: np.dtype[Any] = np.dtype(np.uint8)

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        for field, size in zip(("height", "width", "nChannels"), self.shape, strict=True):
            sizes = column.field(field).to_numpy(zero_copy_only=False)
            if (sizes != size).any():
                other = int(sizes[sizes != size][0])
                raise Unlike(f"holds images of different {field} ({size} in the first, {other} later); resize them")
        flat = Bytes(int(np.prod(self.shape))).array(column.field("data"))
        return flat.reshape(len(column), *self.shape)


@dataclass(frozen=True, slots=True)
class Vectors:
    """Vectors of ``pyspark.ml.linalg``; sparse ones are filled up with zeros."""

    size: int
    dtype: np.dtype[Any] = np.dtype(np.float64)

    @property
    def shape(self) -> Shape:
        return (self.size,)

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        dense = column.field("type").to_numpy(zero_copy_only=False) == 1
        values = column.field("values")
        if dense.all():
            return Lists(Scalars(self.dtype), self.size).array(values)
        filled = np.zeros((len(column), self.size))
        sizes = np.where(dense, pc.list_value_length(values), pc.fill_null(column.field("size"), 0))
        if (sizes != self.size).any():
            raise Unlike(f"holds vectors of different sizes ({self.size} in the first row, {max(sizes)} in another)")
        filled[dense] = values.filter(pa.array(dense)).flatten().to_numpy().reshape(-1, self.size)
        places = column.field("indices").filter(pa.array(~dense))
        rows = np.repeat(np.flatnonzero(~dense), pc.list_value_length(places))
        filled[rows, places.flatten().to_numpy()] = values.filter(pa.array(~dense)).flatten().to_numpy()
        return filled


@dataclass(frozen=True, slots=True)
class Categories:
    """The number of each value in a list that the user gave."""

    values: pa.Array
    dtype: np.dtype[Any] = np.dtype(np.int64)
    shape: Shape = ()

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        if kinds.is_dictionary(column.type):
            column = column.dictionary_decode()
        codes = pc.index_in(column.cast(self.values.type), value_set=self.values)
        if codes.null_count:
            other = column.filter(codes.is_null())[0].as_py()
            raise Unlike(f"holds {other!r}, which is not among its categories")
        numbers: np.ndarray[Any, Any] = codes.to_numpy()
        return numbers.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Stored:
    """An extension type, by what it is stored as; tensors have a shape of their own."""

    items: Form
    shape: Shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.items.dtype

    def array(self, column: pa.Array) -> np.ndarray[Any, Any]:
        return self.items.array(column.storage).reshape(len(column), *self.shape)


def form_of(name: str, example: pa.Array, categories: Mapping[str, Sequence[Any]]) -> Form:
    """How a column is read, by its type and its first row."""
    if name in categories:
        return Categories(pa.array(list(categories[name])))
    if not len(example) or not example[0].is_valid:
        example = pa.array([None], example.type)
    form = _form(example)
    if form is None:
        raise DataError(f"column {name!r} holds {_described(name, example.type)}")
    return form


def _form(example: pa.Array) -> Form | None:
    kind = example.type
    if isinstance(kind, pa.BaseExtensionType):
        inner = _form(example.storage)
        shape = getattr(kind, "shape", None)
        return None if inner is None else Stored(inner, inner.shape if shape is None else tuple(shape))
    if kinds.is_boolean(kind):
        return Scalars(np.dtype(bool))
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return Scalars(np.dtype(kind.to_pandas_dtype()))
    if kinds.is_decimal(kind):
        return Scalars(np.dtype(np.float64), pa.float64())
    if kinds.is_fixed_size_list(kind) or kinds.is_list(kind) or kinds.is_large_list(kind):
        items = example.flatten()
        inner = _form(items[:1] if len(items) else pa.array([None], kind.value_type))
        fixed = kinds.is_fixed_size_list(kind)
        return None if inner is None else Lists(inner, kind.list_size if fixed else len(items))
    if kinds.is_binary(kind) or kinds.is_large_binary(kind):
        return Bytes(len(example[0].as_py() or b""))
    if kinds.is_fixed_size_binary(kind):
        return Bytes(kind.byte_width)
    if kinds.is_struct(kind):
        return _struct(tuple(field.name for field in kind), example[0].as_py() or {})
    return None


def _struct(fields: tuple[str, ...], first: Mapping[str, Any]) -> Form | None:
    if fields == VECTOR:
        return Vectors(len(first.get("values") or ()) if first.get("type", 1) == 1 else int(first["size"]))
    if fields == IMAGE:
        return Images(tuple(int(first.get(name) or 0) for name in ("height", "width", "nChannels")))
    return None


def _described(name: str, kind: pa.DataType) -> str:
    if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind) or kinds.is_dictionary(kind):
        return f"strings; say which there are, categories={{{name!r}: [...]}}, and it becomes their numbers"
    if kinds.is_temporal(kind):
        return f"{kind}, not numbers; turn it into a number first, such as seconds since a date"
    return f"{kind}, which makes no array; choose numbers, arrays of equal length, vectors or images"


def _same_length(offsets: np.ndarray[Any, Any], length: int, what: str) -> None:
    lengths = np.diff(offsets)
    unlike = lengths != length
    if unlike.any():
        row = int(np.argmax(unlike))
        raise Unlike(
            f"holds {what} of different lengths ({length} in the first row, {int(lengths[row])} in another); "
            "pad or cut them to one length"
        )
