"""Data sets of Ray: their blocks are written aside on the nodes where they are."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from ray.data import Dataset

from seamline.core.by_value import carried
from seamline.core.shards import Reading
from seamline.data.arrow.answers import Answers, Make
from seamline.data.arrow.shards import ArrowShards, Gathered
from seamline.data.arrow.staging import Stage
from seamline.data.arrow.writing import write


class RayShards(ArrowShards):
    """The named columns of a ``ray.data.Dataset``, in the order of its blocks."""

    _stage: Stage | None = None

    @staticmethod
    def accepts(data: object) -> bool:
        return isinstance(data, Dataset)

    def names(self) -> Sequence[str]:
        return list(self._data.columns() or ())

    def gather(self, names: Sequence[str], reading: Reading) -> Gathered:
        self._stage = stage = Stage(names, self._columns, reading)
        writing = partial(_write_block, write, stage.target)
        blocks = self._data.select_columns(list(names)).map_batches(
            writing, batch_size=None, batch_format="pyarrow", zero_copy_batch=True
        )
        return stage.gathered(self._in_order(blocks))

    def beside(self, make: Make, batch_rows: int) -> Dataset:
        """The data set with the answers beside its rows; computed when somebody asks, where the blocks are."""
        answers = Answers.of(make, self._columns, batch_rows)
        answering = carried(answer_block, answers, "the model")
        whole = {"batch_size": None, "batch_format": "pyarrow", "zero_copy_batch": True}
        answered: Dataset = Dataset.copy(self._data.map_batches(answering, **whole), _deep_copy=True)
        answered.context.execution_options.preserve_order = True  # those of the copy, not of what the user has
        return answered

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage = None

    def _in_order(self, blocks: Any) -> list[dict[str, Any]]:
        """Blocks come in the order of the data, which their names then follow."""
        with _order_kept(blocks):
            found = [pickle.loads(row["manifest"]) for row in blocks.iter_rows()]
        return [{**each, "part": f"part-{number:08d}"} for number, each in enumerate(found)]


@contextlib.contextmanager
def _order_kept(data: Dataset) -> Iterator[None]:
    """Let blocks come in their order; by itself Ray gives those first that are ready first."""
    options = data.context.execution_options
    before, options.preserve_order = options.preserve_order, True
    try:
        yield
    finally:
        options.preserve_order = before


def _write_block(write: Any, target: dict[str, Any], table: Any) -> Any:
    import os
    import pickle

    import pyarrow as pa

    written = write(target, f"block-{os.getpid()}", iter(table.to_batches()))
    rows = [] if written is None else [pickle.dumps(written)]
    return pa.table({"manifest": pa.array(rows, pa.binary())})


_write_block.__module__ = "__main__"  # functions of that module are pickled by value


def answer_block(answers: Answers, table: pa.Table) -> pa.Table:
    """A block with the answers beside its rows."""
    batches = [answers.beside(batch, 1) for batch in table.combine_chunks().to_batches()]
    return pa.Table.from_batches(batches) if batches else table
