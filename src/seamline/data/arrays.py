"""Arrays in memory: numpy, torch tensors, lists, and dicts and tuples of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamline.core import tree
from seamline.core.shards import Batch, Columns, Numbered, Place, Reading, Shard, Weighed
from seamline.data.balance import part
from seamline.data.columns import pick_columns
from seamline.data.order import Indices, epoch_order, step_count


class ArrayShards:
    """Rows side by side in arrays of equal length; ``(x, y)`` is inputs and targets, all else is inputs."""

    batch_size = None

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        columns.names_alone("arrays")
        if columns.features is not None:
            if not isinstance(data, Mapping):
                raise TypeError(
                    f"feature_cols names columns, but the data is a {type(data).__name__}; "
                    "give a dict of arrays or a DataFrame, or leave feature_cols out"
                )
            data = pick_columns(data, columns)
        if isinstance(data, tuple) and len(data) > 2:
            raise ValueError(
                f"data is a tuple of {len(data)}, which could mean many things; give (x, y), "
                "with several inputs as ((x1, x2), y) or ({'a': x1, 'b': x2}, y)"
            )
        inputs, targets = data if isinstance(data, tuple) and len(data) == 2 else (data, None)
        self.inputs, self.targets = _as_arrays(inputs), _as_arrays(targets)
        self.rows = _common_length(self.inputs, self.targets)

    @staticmethod
    def accepts(data: object) -> bool:
        if isinstance(data, list) and data and all(isinstance(each, (str, os.PathLike)) for each in data):
            return False  # files
        return isinstance(data, (list, tuple, dict, Mapping)) or hasattr(data, "__array__")

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        if reading.batch_size is None:
            raise ValueError("batch_size is missing; arrays have no batches of their own")
        return [ArrayShard(self, reading, worker, workers) for worker in range(workers)]


@dataclass(frozen=True, slots=True)
class ArrayShard:
    """All rows, of which one worker takes its share of each batch."""

    data: ArrayShards
    reading: Reading
    worker: int
    workers: int

    @property
    def steps(self) -> int:
        return step_count(self.data.rows, self._batch_size)

    @property
    def _batch_size(self) -> int:
        assert self.reading.batch_size is not None
        return self.reading.batch_size

    @property
    def numbered(self) -> Numbered:
        return self

    @property
    def count(self) -> int:
        return self.data.rows

    def places(self, epoch: int, first_step: int = 0) -> Iterator[Place]:
        rows, size = self.data.rows, self._batch_size
        order = epoch_order(rows, shuffle=self.reading.shuffle, seed=self.reading.seed, epoch=epoch)
        for first in range(first_step * size, rows, size):
            batch = order[first : first + size]
            mine = part(len(batch), self.worker, self.workers, full=size)
            yield Place(batch[mine.read], first + mine.low, mine.rows, len(batch))  # type: ignore[arg-type]

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        for place in self.places(epoch, first_step):
            chosen: Any = place.numbers
            # Rows that lie side by side are copied in one piece.
            rows = chosen if self.reading.shuffle else slice(chosen[0], chosen[-1] + 1)
            yield Batch(*self._rows(rows), place.start, place.rows, place.batch_rows)

    def read(self, numbers: Sequence[int]) -> tuple[Any, Any]:
        return self._rows(np.asarray(numbers))

    def _rows(self, chosen: Indices | slice) -> tuple[Any, Any]:
        """Copies of the chosen rows: a model that works in place must not change the user's arrays."""

        def take(array: Any) -> Any:
            return array[chosen].copy() if isinstance(chosen, slice) else array[chosen]

        return tree.map_leaves(take, self.data.inputs), tree.map_leaves(take, self.data.targets)


def _as_arrays(data: Any) -> Any:
    """Numpy views of everything; lists of plain numbers become arrays, lists of arrays stay lists."""
    if data is None or isinstance(data, np.ndarray):
        return data
    if isinstance(data, Weighed):
        return Weighed(_as_arrays(data.targets), _as_arrays(data.weights))
    if isinstance(data, Mapping):
        return {key: _as_arrays(value) for key, value in data.items()}
    if isinstance(data, tuple) or (isinstance(data, list) and data and hasattr(data[0], "__array__")):
        return type(data)(_as_arrays(value) for value in data)
    if hasattr(data, "detach"):
        data = data.detach().cpu()
        if "bfloat16" in str(data.dtype):  # numpy does not know it
            data = data.float()
    array = np.asarray(data)
    if array.dtype == object:
        raise ValueError("an input holds rows of unequal shape or mixed types, which make no array")
    return array


def _common_length(inputs: Any, targets: Any) -> int:
    lengths = {name: _length(name, array) for name, array in (*tree.paths(inputs, "x"), *tree.paths(targets, "y"))}
    if len(set(lengths.values())) > 1:
        described = [f"{name} has {length}" for name, length in lengths.items()]
        more = f" and {len(described) - 6} more differ" if len(described) > 6 else ""
        raise ValueError(f"all arrays need the same number of rows, but {', '.join(described[:6])}{more}")
    rows = next(iter(lengths.values()), 0)
    if rows == 0:
        raise ValueError("the data has no rows")
    return rows


def _length(name: str, array: Any) -> int:
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value; its first dimension should be the rows")
    return len(array)
