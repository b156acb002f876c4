"""Arrays in memory: numpy, torch tensors, lists, and dicts and tuples of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamline.core import tree
from seamline.core.shards import Batch, Columns, Reading, Shard
from seamline.data.balance import share
from seamline.data.columns import pick_columns
from seamline.data.order import epoch_order, step_count


class ArrayShards:
    """Rows side by side in arrays of equal length; ``(x, y)`` is inputs and targets, all else is inputs."""

    batch_size = None

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
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

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        rows, size = self.data.rows, self._batch_size
        order = epoch_order(rows, shuffle=self.reading.shuffle, seed=self.reading.seed, epoch=epoch)
        for first in range(first_step * size, rows, size):
            batch_rows = min(size, rows - first)
            low, high = share(batch_rows, self.worker, self.workers)
            start, stop = first + low, first + high
            # A worker without a row of its own computes the batch's first, which counts for nothing there.
            chosen: Any = order[start:stop] if start < stop else order[first : first + 1]
            if not self.reading.shuffle:
                chosen = slice(int(chosen[0]), int(chosen[-1]) + 1)
            inputs = tree.map_leaves(lambda array: array[chosen], self.data.inputs)  # noqa: B023
            targets = tree.map_leaves(lambda array: array[chosen], self.data.targets)  # noqa: B023
            yield Batch(inputs, targets, start, stop - start, batch_rows)


def _as_arrays(data: Any) -> Any:
    """Numpy views of everything; lists of plain numbers become arrays, lists of arrays stay lists."""
    if data is None or isinstance(data, np.ndarray):
        return data
    if isinstance(data, Mapping):
        return {key: _as_arrays(value) for key, value in data.items()}
    if isinstance(data, tuple) or (isinstance(data, list) and data and hasattr(data[0], "__array__")):
        return type(data)(_as_arrays(value) for value in data)
    if hasattr(data, "detach"):
        data = data.detach().cpu()
    array = np.asarray(data)
    if array.dtype == object:
        raise ValueError("an input holds rows of unequal shape or mixed types, which make no array")
    return array


def _common_length(inputs: Any, targets: Any) -> int:
    lengths = {name: _length(name, array) for name, array in (*tree.paths(inputs, "x"), *tree.paths(targets, "y"))}
    if len(set(lengths.values())) > 1:
        described = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise ValueError(f"all arrays need the same number of rows, but {described}")
    rows = next(iter(lengths.values()), 0)
    if rows == 0:
        raise ValueError("the data has no rows")
    return rows


def _length(name: str, array: Any) -> int:
    if array.ndim == 0:
        raise ValueError(f"{name} is a single value; its first dimension should be the rows")
    return len(array)
