"""How rows of a table are laid out as inputs and targets, and how record batches are put into their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from seamline.core.errors import DataError
from seamline.core.shards import Columns, Weighed
from seamline.data.arrow.forms import Form, Unlike, form_of
from seamline.data.columns import arranged, wanted

Arrays = list[np.ndarray[Any, Any]]
Places = slice | np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of a batch: a column, or several side by side."""

    names: tuple[str, ...]
    forms: tuple[Form, ...]
    stacked: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.result_type(*(form.dtype for form in self.forms))

    @property
    def shape(self) -> tuple[int, ...]:
        inner = self.forms[0].shape
        return (len(self.forms), *inner) if self.stacked else inner

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Layout:
    """All arrays of a batch, in the order of their leaves, and the structure around them."""

    leaves: tuple[Leaf, ...]
    columns: Columns
    example: pa.RecordBatch
    """The first row, for a worker that has to run the model with a row that counts for nothing."""

    @classmethod
    def of(cls, example: pa.RecordBatch, columns: Columns) -> Layout:
        def leaf(names: str | Sequence[str]) -> Leaf:
            chosen = (names,) if isinstance(names, str) else tuple(names)
            forms = tuple(form_of(name, example.column(name), columns.categories) for name in chosen)
            for name, form in zip(chosen, forms, strict=True):
                if form.shape != forms[0].shape:
                    raise DataError(
                        f"column {name!r} has shape {form.shape} and {chosen[0]!r} has {forms[0].shape}; "
                        "columns side by side need one shape, so name them as inputs of their own"
                    )
            return Leaf(chosen, forms, not isinstance(names, str))

        weight = () if columns.weight is None else (columns.weight,)
        leaves = [leaf(names) for names in (*(columns.features or ()), *(columns.labels or ()), *weight)]
        return cls(tuple(leaves), columns, example.select(wanted(columns)).slice(0, 1))

    @property
    def names(self) -> list[str]:
        return wanted(self.columns)

    @property
    def row_bytes(self) -> int:
        return sum(leaf.row_bytes for leaf in self.leaves)

    def empty(self, rows: int) -> Arrays:
        return [np.empty((rows, *leaf.shape), leaf.dtype) for leaf in self.leaves]

    def put(self, batch: pa.RecordBatch, chosen: Places, arrays: Arrays, places: Places) -> None:
        """Copy the chosen rows of a record batch to their places in the arrays."""
        known: dict[str, np.ndarray[Any, Any]] = {}
        for leaf, target in zip(self.leaves, arrays, strict=True):
            for name, form in zip(leaf.names, leaf.forms, strict=True):
                if name not in known:
                    known[name] = self._read(name, form, batch)
            if leaf.stacked:
                _put_side_by_side([known[name] for name in leaf.names], chosen, target, places)
            else:
                _put(known[leaf.names[0]][chosen], target, places)

    def _read(self, name: str, form: Form, batch: pa.RecordBatch) -> np.ndarray[Any, Any]:
        column = filled(name, batch.column(name), self.columns.na)
        if len(column) == 0:
            return np.empty((0, *form.shape), form.dtype)
        try:
            return form.array(column)
        except Unlike as difference:
            raise DataError(f"column {name!r} {difference}") from None

    def batch(self, arrays: Arrays, low: int, high: int) -> tuple[Any, Any]:
        """Inputs and targets of some rows, as views."""
        views = iter([array[low:high] for array in arrays])
        inputs, targets = arranged(views, self.columns.features), arranged(views, self.columns.labels)
        return inputs, targets if self.columns.weight is None else Weighed(targets, next(views))

    def spare(self) -> tuple[Any, Any]:
        """The example as a batch of one row."""
        arrays = self.empty(1)
        self.put(self.example, slice(0, 1), arrays, slice(0, 1))
        return self.batch(arrays, 0, 1)


def _put_side_by_side(columns: Arrays, chosen: Places, target: np.ndarray[Any, Any], places: Places) -> None:
    if isinstance(places, slice):
        for number, column in enumerate(columns):
            target[places, number] = column[chosen]
        return
    # Rows are put together while they are in the processor's cache, and scattered whole.
    rows = np.empty((len(places), *target.shape[1:]), target.dtype)
    for number, column in enumerate(columns):
        rows[:, number] = column[chosen]
    _put(rows, target, places)


def _put(rows: np.ndarray[Any, Any], target: np.ndarray[Any, Any], places: Places) -> None:
    if isinstance(places, slice) or rows.ndim == 1 or rows.dtype != target.dtype or not rows.flags.c_contiguous:
        target[places] = rows
    elif rows.size:
        # As pieces of memory: numpy would take each row apart.
        whole = np.dtype((np.void, rows[0].nbytes))
        target.reshape(len(target), -1).view(whole)[:, 0][places] = rows.reshape(len(rows), -1).view(whole)[:, 0]


def filled(name: str, column: pa.Array, na: Any) -> pa.Array:
    """A column whose missing values are what the user said; an error where nothing was said."""
    if not column.null_count:
        return column
    unfilled(name, column.null_count, na)
    value = na.get(name) if isinstance(na, Mapping) else na
    try:
        return column.fill_null(pa.scalar(value).cast(column.type))
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"column {name!r} holds {column.type}, which {value!r} cannot fill ({error})") from error


def unfilled(name: str, count: int, na: Any) -> None:
    """Raise for missing values that nobody said what to do with."""
    said = na.get(name) if isinstance(na, Mapping) else na
    if count and said is None:
        raise DataError(
            f"column {name!r} has missing values ({count} were seen first); say na='drop' to leave out such rows, "
            "or na=0 or na={'name': 0} to fill them"
        )
