"""Data sets of ``tf.data``: the user's pipeline, batches and shuffling; our sharding."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

from seamline.core import tree
from seamline.core.errors import DataError
from seamline.core.shards import Batch, Columns, Reading, Shard
from seamline.data.balance import part
from seamline.data.columns import pick_columns, require, wanted
from seamline.data.tf_pipeline import Pipeline


class TfDataShards:
    """A ``tf.data.Dataset`` whose items are batches over all workers, or rows, which are then batched.

    Every worker runs the pipeline and keeps its part of each batch, so any number of workers learns from the batches
    that the pipeline gives one. Shuffling without a seed gets that of the run.
    """

    rows = None

    def __init__(self, data: Any, columns: Columns = Columns()) -> None:
        columns.names_alone("a tf.data pipeline")
        self._data = data
        self._columns = columns
        _check(data.element_spec, columns)
        self._batched = _is_batched(data)

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, tf.data.Dataset)

    @property
    def batch_size(self) -> int | None:
        """What ``.batch`` was told last, where that is known."""
        if not self._batched:
            return None
        size = next((each._batch_size for each in _steps(self._data) if hasattr(each, "_batch_size")), None)
        return None if size is None else int(size)

    def split(self, workers: int, reading: Reading) -> list[Shard]:
        data = self._data
        if not self._batched:
            if reading.batch_size is None:
                raise ValueError("batch_size is missing; the items of this tf.data pipeline are rows, not batches")
            data = data.batch(reading.batch_size)
        length = int(data.cardinality())
        if length == tf.data.INFINITE_CARDINALITY:
            raise DataError(
                "this tf.data pipeline never ends; say what an epoch is: leave .repeat() out, "
                "or add .take(n) for epochs of n batches"
            )
        pipeline = Pipeline.of(data, seed=reading.seed, in_order=reading.every_row_in_order)
        known = None if length == tf.data.UNKNOWN_CARDINALITY else length
        full = (self.batch_size if self._batched else reading.batch_size) or 0
        return [TfDataShard(pipeline, self._columns, worker, workers, full, known) for worker in range(workers)]


@dataclass(slots=True)
class TfDataShard:
    """One worker's part of each batch of a pipeline."""

    pipeline: Pipeline
    columns: Columns
    worker: int
    workers: int
    full: int
    """The size of a batch that is not cut short; 0 if only the batches themselves know."""
    length: int | None
    _begun: tuple[int, Any] | None = field(default=None, repr=False, compare=False)
    """How often the pipeline was begun here, and the pipeline, which may hold a cache."""

    @property
    def steps(self) -> int | None:
        """Where there are several workers only the end tells: they compare their batches on the way there."""
        return self.length if self.workers == 1 else None

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        dataset: Any = self._begun[1] if self._begun and self._begun[0] == epoch else self.pipeline.begun(epoch)
        self._begun = epoch + 1, dataset
        first = 0
        for step, item in enumerate(dataset.as_numpy_iterator()):
            rows = _count(item)
            mine = part(rows, self.worker, self.workers, full=self.full)
            if step >= first_step:
                inputs, targets = self._inputs_and_targets(tree.map_leaves(lambda leaf: _own(leaf[mine.read]), item))  # noqa: B023
                mark = _fingerprint(item) if self.workers > 1 else None
                yield Batch(inputs, targets, first + mine.low, mine.rows, rows, mark)
            first += rows

    def _inputs_and_targets(self, item: Any) -> tuple[Any, Any]:
        if self.columns.features is not None:
            return pick_columns(item, self.columns)
        return item if isinstance(item, tuple) else (item, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return TfDataShard, (self.pipeline, self.columns, self.worker, self.workers, self.full, self.length)


def _check(spec: Any, columns: Columns) -> None:
    """Refuse items that make no inputs and targets."""
    if columns.features is not None:
        if not isinstance(spec, dict):
            raise TypeError(
                "feature_cols names columns, but the items of this tf.data pipeline are no dicts; leave it out"
            )
        for name in wanted(columns):
            require(name, spec)
    elif isinstance(spec, tuple) and len(spec) != 2:
        raise ValueError(
            f"the items of this tf.data pipeline are tuples of {len(spec)}; give (x, y), with several inputs as "
            "((x1, x2), y)"
        )
    for name, each in tree.paths(spec):
        if not isinstance(each, tf.TensorSpec) or each.dtype == tf.string:
            what = "text" if getattr(each, "dtype", None) == tf.string else type(each).__name__
            raise DataError(
                f"item{name} of this tf.data pipeline is {what}, which makes no array; turn it into numbers of one "
                "shape by .map(...)"
            )


def _is_batched(dataset: Any) -> bool:
    """Whether the items are batches: by the last step that makes or undoes them, else by the shape of the items."""
    for step in _steps(dataset):
        name = type(step).__name__
        if "Unbatch" in name or name == "_TensorSliceDataset":
            return False
        if "Batch" in name:
            return True
    shapes = [each.shape for each in tree.leaves(dataset.element_spec)]
    if all(shape.rank and shape[0] is None for shape in shapes):
        return True
    if any(shape.rank == 0 for shape in shapes):
        return False
    raise DataError("nobody can tell whether the items of this tf.data pipeline are rows or batches; add .batch(n)")


def _steps(dataset: Any) -> Iterator[Any]:
    """The steps of a pipeline, from the last to the first, as far as it is a line."""
    while dataset is not None:
        yield dataset
        dataset = getattr(dataset, "_input_dataset", None)


def _count(item: Any) -> int:
    counts = {name: len(leaf) for name, leaf in tree.paths(item)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"item{name} has {count}" for name, count in counts.items())
        raise DataError(f"all parts of a batch need the same number of rows, but {told}")
    return next(iter(counts.values()))


def _own(array: Any) -> Any:
    """A copy: TensorFlow's own memory must not change, and models may work in place."""
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else np.array(array)


def _fingerprint(item: Any) -> int:
    """A number that differs when any value of a batch does."""
    total = 0
    for leaf in tree.leaves(item):
        total = zlib.crc32(np.ascontiguousarray(leaf).tobytes(), total)
    return total
