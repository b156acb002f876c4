"""What a model says of the rows of a table, as columns beside them."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seamline.core import pickling, tree
from seamline.core.errors import DataError
from seamline.core.shards import Columns
from seamline.data.arrow.layout import Layout
from seamline.data.columns import wanted

PREDICTION = "prediction"

Make = Callable[[int | None], Callable[[Any], Any]]
"""Makes, once in each process and for so many threads, the function from inputs to arrays."""

_made: dict[str, Callable[[Any], Any]] = {}
"""What this process has made last, by the token of its answers."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Travels to where the rows are, and answers there; what makes the model is opened once by each process."""

    make: bytes
    columns: Columns
    batch_rows: int
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, make: Make, columns: Columns, batch_rows: int) -> Answers:
        return cls(pickling.dumps(make, "the model"), columns, batch_rows)

    @property
    def drops(self) -> bool:
        return isinstance(self.columns.na, str)

    def beside(self, batch: pa.RecordBatch, threads: int | None = None) -> pa.RecordBatch:
        """The same rows with the model's answers as further columns."""
        if self.drops:
            for name in wanted(self.columns):
                batch = batch.filter(pc.is_valid(batch.column(name)))
        answers = self._columns(batch, threads) if len(batch) else {}
        for name, column in answers.items():
            if name in batch.schema.names:
                raise DataError(f"the table has a column {name!r} already; rename it before you predict")
            batch = batch.append_column(name, column)
        return batch

    def fields(self, example: pa.RecordBatch) -> list[pa.Field]:
        """The columns that answers to rows like these have."""
        if not len(example):
            raise DataError("the table has no rows, so what the model would say of them cannot be found out")
        answered = self.beside(example)
        _made.clear()  # rows are answered elsewhere, so the model need not stay here
        if not len(answered):
            raise DataError("the first rows have missing values and are left out; fill them, or put others first")
        return [answered.schema.field(number) for number in range(example.num_columns, answered.num_columns)]

    def _columns(self, batch: pa.RecordBatch, threads: int | None) -> dict[str, pa.Array]:
        answer = self._answer(threads)
        layout = Layout.of(batch.slice(0, 1), self.columns)
        arrays = layout.empty(len(batch))
        layout.put(batch, slice(0, len(batch)), arrays, slice(0, len(batch)))
        outputs = [
            answer(layout.batch(arrays, low, min(low + self.batch_rows, len(batch)))[0])
            for low in range(0, len(batch), self.batch_rows)
        ]
        whole = outputs[0] if len(outputs) == 1 else tree.zip_leaves(np.concatenate, outputs)
        return {name: _column(name, array, len(batch)) for name, array in _named(whole)}

    def _answer(self, threads: int | None) -> Callable[[Any], Any]:
        if self.token not in _made:
            _made.clear()
            _made[self.token] = pickle.loads(self.make)(threads)
        return _made[self.token]


def _named(outputs: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    if isinstance(outputs, Mapping):
        yield from ((f"{PREDICTION}_{name}", array) for name, array in outputs.items())
    elif isinstance(outputs, (list, tuple)):
        yield from ((f"{PREDICTION}_{number}", array) for number, array in enumerate(outputs))
    else:
        yield PREDICTION, outputs


def _column(name: str, array: np.ndarray[Any, Any], rows: int) -> pa.Array:
    """A number for each row, or lists in lists."""
    if array.ndim == 0 or len(array) != rows:
        raise DataError(f"{name} has shape {array.shape} for {rows} rows; its first dimension must be the rows")
    column = pa.array(np.ascontiguousarray(array).reshape(-1))
    for number in range(array.ndim - 1, 0, -1):
        length, count = array.shape[number], int(np.prod(array.shape[:number]))
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * length)
        column = pa.ListArray.from_arrays(offsets, column)
    return column
