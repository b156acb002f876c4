"""Batches whose features are remembered, and batches made of what is remembered."""

from __future__ import annotations

import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from seamline.frameworks.torch.frozen.bits import raw, same_bits
from seamline.frameworks.torch.frozen.cache import Column, NoRoomError, Room, RowCache
from seamline.frameworks.torch.frozen.call import Shape
from seamline.frameworks.torch.frozen.fast import distance, memory_format
from seamline.frameworks.torch.frozen.mark import mark, marked
from seamline.frameworks.torch.frozen.site import Tensors
from seamline.frameworks.torch.frozen.stand_in import Numbers, StandIn

Load = Callable[[], Iterable[Any]]
LoadRows = Callable[[Sequence[int]], Any]

SPOT_ROWS = 4
"""Rows of the spot check that go through the frozen part again."""


class Feeding:
    """The rows of one data set in a cache, in the form of its batches.

    Tensors that only the frozen part reads are not kept: stand-ins take their place. The rest of a batch is.
    """

    def __init__(
        self,
        batch: Any,
        sources: Sequence[int],
        stand_ins: Sequence[int],
        features: Tensors,
        room: Room,
        size: int | None = None,
    ) -> None:
        """``sources`` are the places in the batch of what the frozen part takes, ``stand_ins`` those not kept.

        With ``size``, only features that were computed in batches of that many rows are kept and given.
        """
        leaves, _ = pytree.tree_flatten(batch)
        self._shape = Shape.of(batch)
        self._sources = list(sources)
        self._stand_ins = set(stand_ins)
        self._check(leaves, features)
        self._inputs = {number: Column.of(leaves[number]) for number in stand_ins}
        self._kept = [n for n, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and n not in stand_ins]
        self._layouts = [memory_format(feature) for feature in features]
        kept = [Column.of(leaves[number]) for number in self._kept]
        fingerprint = Column((), torch.int64)
        self.cache = RowCache(room, [fingerprint, *kept, *map(Column.of, features)])
        self._size = size
        self._first_feature = 1 + len(kept)

    def _check(self, leaves: Sequence[Any], features: Tensors) -> None:
        rows = len(leaves[self._sources[0]])
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and (leaf.ndim == 0 or len(leaf) != rows):
                raise NoRoomError(f"a batch holds a tensor of shape {tuple(leaf.shape)}, which is not one value a row")
            if not isinstance(leaf, torch.Tensor) and leaf is not None:
                raise NoRoomError(f"a batch holds {type(leaf).__name__}, and only tensors can be kept")
            if isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu":
                raise NoRoomError(f"a batch is on {leaf.device}, and features are kept for the CPU alone")
        if any(feature.ndim == 0 or len(feature) != rows for feature in features):
            raise NoRoomError("the features are not one value a row")

    # Remembering

    def hand_out(self, batch: Any, numbers: Numbers) -> bool:
        """Note what is kept of a real batch, and mark its inputs so that their features find their rows."""
        leaves, found = pytree.tree_leaves(batch), self._shape.tensors(batch)
        if found is None or not self._fits(leaves, len(numbers)):
            return False
        if len(self.cache.missing(numbers)):
            self.cache.write(0, numbers, self._fingerprint(leaves))
            for column, number in enumerate(self._kept, start=1):
                self.cache.write(column, numbers, leaves[number])
            for number in self._sources:
                mark(leaves[number], numbers)
        return True

    def remember(self, inputs: Tensors, features: Tensors) -> str | None:
        """Keep the features of marked inputs; or the reason why nothing of this data set can be kept."""
        marks = [found for found in map(marked, inputs) if found is not None]
        if len(marks) < len(inputs) or any(each.numbers.tolist() != marks[0].numbers.tolist() for each in marks[1:]):
            return None
        if any(tensor._version != each.version for tensor, each in zip(inputs, marks, strict=True)):
            return "the batch is changed in place before the model sees it"
        if [Column.of(feature) for feature in features] != self.cache.columns[self._first_feature :]:
            return "features have different forms"
        if self.suits(marks[0].numbers):
            self._write_features(marks[0].numbers, features)
        return None

    def fill_in(self, batch: Any, numbers: Numbers, compute: Callable[[Tensors], Tensors]) -> bool:
        """Keep rows that were loaded for this alone."""
        if not self.hand_out(batch, numbers):
            return False
        leaves = pytree.tree_leaves(batch)
        inputs = [leaves[number] for number in self._sources]
        step = self._size or len(numbers)
        for first in range(0, len(numbers), step):
            some = [_as_long_as(step, tensor[first : first + step]) for tensor in inputs]
            count = len(numbers[first : first + step])
            self._write_features(numbers[first : first + step], [each[:count] for each in compute(some)])
        return True

    def suits(self, numbers: Numbers) -> bool:
        """Whether a batch of these rows may be made of what is kept."""
        return self._size in (None, len(numbers))

    def _write_features(self, numbers: Numbers, features: Tensors) -> None:
        for column, feature in enumerate(features, start=self._first_feature):
            self.cache.write(column, numbers, feature)
        self.cache.fill(numbers)

    # Reading

    def made_up(self, numbers: Numbers, load: Callable[[], Any]) -> Any:
        """A batch out of the cache; ``load`` gets the real one, should anybody look at it."""
        features = self._features(numbers)
        kept = iter(self.cache.read(column, numbers) for column in range(1, self._first_feature))
        real = functools.cache(lambda: pytree.tree_leaves(load()))
        leaves: list[Any] = []
        for place in range(len(self._shape.fixed)):
            if place in self._stand_ins:
                column = self._inputs[place]
                size = torch.Size((len(numbers), *column.shape))
                leaves.append(StandIn.of(size, column.dtype, features, functools.partial(_nth, real, place)))
            elif place in self._kept:
                leaves.append(next(kept))
        return self._shape.rebuild(leaves)

    def difference(
        self, batch: Any, numbers: Numbers, compute: Callable[[Tensors], Tensors], farthest: float
    ) -> str | None:
        """What is not as it is remembered in a batch that was loaded again; ``None`` if all is."""
        leaves = pytree.tree_leaves(batch)
        if not self._fits(leaves, len(numbers)):
            return "its rows have another form"
        if not same_bits(self._fingerprint(leaves), self.cache.read(0, numbers)):
            return "its rows"
        for column, place in enumerate(self._kept, start=1):
            if not same_bits(leaves[place], self.cache.read(column, numbers)):
                return "its rows"
        again = compute([leaves[place][:SPOT_ROWS] for place in self._sources])
        away = distance(again, self._features(numbers[:SPOT_ROWS]))
        return None if away <= farthest else f"what the frozen part computes of them (by {away:.1e})"

    def _features(self, numbers: Numbers) -> list[torch.Tensor]:
        columns = enumerate(self._layouts, start=self._first_feature)
        return [self.cache.read(column, numbers).contiguous(memory_format=layout) for column, layout in columns]

    def _fits(self, leaves: Sequence[Any], rows: int) -> bool:
        expected = dict(zip(self._kept, self.cache.columns[1:], strict=False)) | self._inputs
        return len(leaves) == len(self._shape.fixed) and all(
            isinstance(leaves[place], torch.Tensor)
            and len(leaves[place]) == rows
            and Column.of(leaves[place]) == column
            for place, column in expected.items()
        )

    def _fingerprint(self, leaves: Sequence[Any]) -> torch.Tensor:
        """A number for each row, which another content of the inputs would change."""
        totals: list[int] = []
        for place in sorted(self._stand_ins):
            lines = raw(leaves[place]).numpy()
            before = totals or [0] * len(lines)
            totals = [zlib.crc32(line, total) for line, total in zip(lines, before, strict=True)]
        return torch.tensor(totals, dtype=torch.int64)


def _nth(leaves: Callable[[], list[Any]], place: int) -> Any:
    return leaves()[place]


def _as_long_as(rows: int, tensor: torch.Tensor) -> torch.Tensor:
    """With rows repeated until there are enough."""
    return tensor if len(tensor) == rows else tensor[torch.arange(rows) % len(tensor)]


def as_numbers(indices: Sequence[int] | Numbers) -> Numbers:
    return np.asarray(indices, dtype=np.int64)


def from_the(place: int, load: Load) -> Iterator[Any]:
    """The batches of an epoch from one on."""
    return itertools.islice(iter(load()), place, None)
