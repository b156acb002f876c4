"""The frozen beginning of a model, computed in the fastest right way, and once for each row where that can be."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import nn

from seamline.frameworks.torch.frozen import fast
from seamline.frameworks.torch.frozen.bits import same_bits
from seamline.frameworks.torch.frozen.cache import NoRoomError, Room
from seamline.frameworks.torch.frozen.call import some_rows
from seamline.frameworks.torch.frozen.fast import Precision, Way
from seamline.frameworks.torch.frozen.feeding import Feeding, Load, LoadRows
from seamline.frameworks.torch.frozen.find import Found, find
from seamline.frameworks.torch.frozen.forward import FrozenForward
from seamline.frameworks.torch.frozen.recall import Recall
from seamline.frameworks.torch.frozen.site import Tensors
from seamline.frameworks.torch.frozen.snapshot import Snapshot
from seamline.frameworks.torch.frozen.stand_in import StandIn, carried
from seamline.frameworks.torch.frozen.watch import Watch

Say = Callable[[str], Any]

READ_S, READ_BYTES_PER_S = 3e-4, 1e9
"""What a batch from the cache costs, roughly."""


class FrozenPart:
    """What stands before the first trainable layer of a model; ``of`` finds it.

    While it is installed, one module of the model computes its frozen beginning without gradients and in the chosen
    way; ``epoch`` feeds it with batches whose features it knows. The model's parameters, state and copies are as ever.
    When the part is thawed, its modes or weights change, or hooks are set on it, it steps back at once and says so.
    """

    def __init__(self, found: Found, batch: Any, way: Way, speedup: float, say: Say) -> None:
        self.name = found.visit.name
        self.described = self.name or "the beginning of the model"
        self.way = way
        self.speedup = speedup
        self.active = True
        self._found = found
        self._site = found.site
        self._batch = batch
        self._tell = say
        self._watch = Watch(found.site, self.name)
        self._forward: FrozenForward | None = None
        self._recall: Recall | None = None

    @classmethod
    def of(
        cls,
        model: nn.Module,
        batch: Any,
        run: Callable[[Any], Any],
        *,
        precision: Precision = "auto",
        way: str | None = None,
        say: Say = print,
    ) -> FrozenPart | None:
        """The frozen part of ``model``, or ``None``, having said why.

        ``run(batch)`` calls the model as training does, without stepping the optimizer; modules, gradients and random
        numbers are afterwards as they were. ``precision`` bounds what may be tried: ``"fp32"`` gives the bits of the
        plain forward pass, ``"auto"`` may choose bf16 where the processor has it, ``"fastest"`` also int8 if it is as
        near to the plain features as bf16 has to be. ``way`` names what another worker
        has chosen, so that all compute alike.
        """
        if all(parameter.requires_grad for parameter in model.parameters()):
            return None
        with Snapshot(model):
            found, reason = find(model, batch, run)
            if found is None:
                say(f"frozen: nothing is made faster: {reason}")
                return None
            ways, _ = fast.ways(found.site, found.visit.inputs, precision, found.visit.ambient, only=way)
        chosen = fast.fastest(ways) if way is None else next((each for each in ways if each.name == way), ways[0])
        part = cls(found, batch, chosen, ways[0].seconds / chosen.seconds, say)
        how = f"as {chosen.name}, {part.speedup:.1f} times as fast, features within {chosen.distance:.0e}"
        part._say(f"{part.described} ({found.parameters:,} parameters) runs {'as it is' if chosen.exact else how}")
        return part

    def _say(self, line: str) -> None:
        self._tell(f"frozen: {line}")

    # Installing

    def install(self) -> None:
        """Take over the ``forward`` of one module, on the instance."""
        if self._forward is None:
            self._forward = FrozenForward(self._site, self._features)
            self._forward.install()

    def remove(self) -> None:
        """Give the ``forward`` back and forget what is remembered; its folder goes."""
        if self._forward is not None:
            self._forward.remove()
            self._forward = None
        if self._recall is not None:
            self._recall.close()
            self._recall = None

    def __enter__(self) -> FrozenPart:
        self.install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    # Computing

    def _features(self, inputs: Tensors) -> Tensors | None:
        """The features for one call; ``None`` if the plain forward pass has to do it."""
        usual = self.active and self._found.visit.ambient.still_holds() and self._site.ready()
        if not usual or not self._trusted():
            return None
        stand_ins = [tensor for tensor in inputs if isinstance(tensor, StandIn)]
        if stand_ins:
            known = [carried(tensor) for tensor in stand_ins]
            return None if None in known else known[0]
        with torch.no_grad():
            features = self.way.compute(inputs)
        if self._recall is not None:
            self._recall.remember(inputs, features)
        return features

    def _trusted(self) -> bool:
        """Whether all is as it was found; if not, the plain way is taken from here on."""
        problem = self._watch.problem() if self.active else None
        if problem is not None:
            self.active = False
            self._say(f"{self.described} is computed in the plain way from here on: {problem}")
        return self.active

    def _compute(self, inputs: Tensors) -> Tensors:
        with torch.no_grad(), self._found.visit.ambient.again():
            return self.way.compute(inputs)

    # Remembering

    def cache(
        self,
        rows: int,
        folder: Path | str | None = None,
        limit_bytes: int | None = None,
        *,
        exact: bool = False,
    ) -> bool:
        """Remember the features of a data set of so many rows; says whether that is on, and if not, why.

        ``folder`` is made for this and removed at the end; processes of one machine that give the same one share what
        they remember. A row's features may differ in the last bits with the number of rows computed together;
        ``exact`` keeps only those of batches as long as the one that the part was found with, so that they are the
        plain run's to the bit, and loads all others.
        """
        try:
            feeding = self._feed(Room(rows, Path(folder) if folder else None, limit_bytes), exact=exact)
        except NoRoomError as problem:
            self._say(f"{self.described} is not cached: {problem}")
            return False
        self._recall = Recall(feeding, self._compute, fast.FARTHEST[self.way.precision], self._say)
        self._say(f"the features of {rows:,} rows are kept from the first epoch on ({self._recall.size / 1e6:,.1f} MB)")
        return True

    def _feed(self, room: Room, *, exact: bool) -> Feeding:
        visit = self._found.visit
        sources = [source for source in visit.sources if source is not None]
        if not visit.direct:
            raise NoRoomError("what it takes is computed from the batch first; do that in the data set")
        if any(tensor.ndim == 0 or len(tensor) != len(visit.inputs[0]) for tensor in visit.inputs):
            raise NoRoomError("its inputs do not have the same number of rows")
        apart = self.rows_apart(same_size=exact)
        if apart > (0.0 if exact else fast.FARTHEST[self.way.precision]):
            raise NoRoomError(f"a row's features depend on the other rows of its batch (by {apart:.0e})")
        stand_ins = [source for number, source in enumerate(sources) if not self._site.reads_input(number)]
        if not stand_ins:
            raise NoRoomError("the trainable part reads the same inputs")
        size = len(visit.inputs[0]) if exact else None
        return Feeding(self._batch, sources, stand_ins, self._compute(visit.inputs), room, size)

    def rows_apart(self, *, same_size: bool = False) -> float:
        """How far a row's features are when the batch around it is another; 0.0 if they are the same to the bit."""
        inputs = self._found.visit.inputs
        whole, turned = self._compute(inputs), self._compute([tensor.flip(0) for tensor in inputs])
        pairs = [(one, other.flip(0)) for one, other in zip(whole, turned, strict=True)]
        if not same_size:
            fewer = some_rows(inputs, max(1, len(inputs[0]) // 2))
            pairs += [(one, other[: len(one)]) for one, other in zip(self._compute(fewer), whole, strict=True)]
        if all(same_bits(one, other) for one, other in pairs):
            return 0.0
        ours, theirs = zip(*pairs, strict=True)
        return max(fast.distance(ours, theirs), float(np.finfo(np.float64).tiny))

    def saves_time(self, load_s: float = 0.0) -> bool:
        """Whether a batch is read from the cache in less time than it takes to load and compute it."""
        begin = time.perf_counter()
        features = self._compute(self._found.visit.inputs)
        compute_s = time.perf_counter() - begin
        return load_s + compute_s > READ_S + sum(feature.nbytes for feature in features) / READ_BYTES_PER_S

    # Feeding

    def adopt(self, batch: Any, numbers: Sequence[int]) -> None:
        """Remember the features of a batch that was loaded before, and that the model is about to see."""
        if self._recall is not None:
            self._recall.adopt(batch, numbers)

    def epoch(self, batches: Sequence[Sequence[int]], load: Load, load_rows: LoadRows | None = None) -> Iterator[Any]:
        """The batches of one epoch, from what is remembered if all of it is, else from ``load()``.

        ``batches`` are the row numbers of each batch, in the order in which ``load()`` gives them.
        ``load_rows(numbers)`` gives one batch of any rows; without it, code that looks at a batch from the cache makes
        the epoch be read from its beginning, and an epoch comes from the cache only if every row is known.
        """
        self._watch.look_closer_next()
        if self._recall is None or not self._trusted():
            yield from load()
        else:
            yield from self._recall.epoch(batches, load, load_rows, self._trusted)
