"""Pipelines of ``tf.data`` as graphs: they travel, and an epoch of them can be begun anywhere, any time.

A pipeline's own shuffling draws from a generator that lives in one process. As a graph it has its seeds alone, and then
the order of an epoch follows from the seeds and the number of times that the pipeline was begun before.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf  # type: ignore[import-untyped]

from seamline.core import rng
from seamline.core.errors import DataError, UnpicklableError

_IGNORE_STATE = 1
"""Tells TensorFlow to write down pipelines that draw or that call Python; we look at those ourselves."""
_WITHOUT_HANDLES = {
    "ShuffleDatasetV3": ("ShuffleDataset", 4),
    "ShuffleAndRepeatDatasetV2": ("ShuffleAndRepeatDataset", 5),
    "CacheDatasetV2": ("CacheDataset", 2),
}
"""Steps that use an object of one process, the same steps that do without, and which input it is."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as its graph. ``in_order`` undoes its shuffling; shuffling without a seed gets one from ``seed``."""

    graph: bytes
    spec: Any
    bound: bool
    """Whether it uses what only the process has that made it, such as Python functions."""
    drawing: bool
    """Whether an epoch begins its shuffling several times, so that only reading it to its end leads to the next."""
    _alive: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, dataset: Any, *, seed: int, in_order: bool) -> Pipeline:
        try:
            written = tf.raw_ops.DatasetToGraphV2(
                input_dataset=dataset._variant_tensor,
                external_state_policy=_IGNORE_STATE,
                strip_device_assignment=True,
            ).numpy()
        except (tf.errors.OpError, ValueError) as error:
            raise DataError(
                f"this tf.data pipeline cannot be sent to workers ({error}); give a function that makes it"
            ) from error
        graph = tf.compat.v1.GraphDef()
        graph.ParseFromString(written)
        _without_handles(graph)
        _shuffling(graph, seed, in_order)
        return cls(graph.SerializeToString(), dataset.element_spec, _is_bound(graph), _shuffles_again(graph), dataset)

    def begun(self, times: int) -> Any:
        """The pipeline as one finds it after some epochs; who then begins it gets the next."""
        dataset = tf.data.experimental.from_variant(tf.raw_ops.DatasetFromGraph(graph_def=self.graph), self.spec)
        for _ in range(times):
            items = iter(dataset)
            if self.drawing:
                collections.deque(items, maxlen=0)
        return dataset

    def __reduce__(self) -> tuple[Any, ...]:
        if self.bound:
            raise UnpicklableError(
                "this tf.data pipeline calls Python functions of this process, so it cannot go to the workers; "
                "give a function that makes it, which each of them calls"
            )
        return Pipeline, (self.graph, self.spec, self.bound, self.drawing)


def _without_handles(graph: Any) -> None:
    for node in graph.node:
        if node.op in _WITHOUT_HANDLES:
            node.op, position = _WITHOUT_HANDLES[node.op]
            del node.input[position]


def _shuffling(graph: Any, seed: int, in_order: bool) -> None:
    """Give seeds to what has none; or leave each row where it is, by shuffling among one."""
    for number, (node, constants) in enumerate(_shuffles(graph)):
        size, *seeds = (constants.get(_name(each)) for each in node.input[1:4])
        if in_order and size is not None:
            _set(size, 1)
        if all(each is not None and _value(each) == 0 for each in seeds):
            for place, each in enumerate(seeds):
                _set(each, 1 + (rng.derive(seed, number, place) >> 2))


def _shuffles(graph: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each step that shuffles, with the constants around it; they may be within functions too."""
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        constants = {node.name: node for node in nodes if node.op == "Const"}
        for node in nodes:
            if node.op.startswith("Shuffle") and len(node.input) > 3:
                yield node, constants


def _shuffles_again(graph: Any) -> bool:
    outside = sum(node.op.startswith("Shuffle") for node in graph.node)
    inside = sum(node.op.startswith("Shuffle") for function in graph.library.function for node in function.node_def)
    return inside > 0 or (outside > 0 and any("Repeat" in node.op for node in graph.node))


def _is_bound(graph: Any) -> bool:
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    used = {_name(each) for node in nodes for each in node.input}
    handle = tf.resource.as_datatype_enum
    return any(
        "PyFunc" in node.op or (node.op == "Const" and node.attr["dtype"].type == handle and node.name in used)
        for node in nodes
    )


def _name(connection: str) -> str:
    """The node that an input comes from: ``Const/_2`` of ``Const/_2:output:0``."""
    return connection.removeprefix("^").partition(":")[0]


def _value(constant: Any) -> int:
    return int(tf.make_ndarray(constant.attr["value"].tensor))


def _set(constant: Any, value: int) -> None:
    constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int64))
