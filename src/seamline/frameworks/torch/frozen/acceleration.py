"""The frozen part of a model in an ``Estimator``'s run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np
from torch import nn

from seamline.core.events import Note
from seamline.core.framework import Job
from seamline.core.shards import Batch, Place, Shard, numbered
from seamline.core.tuning import Tuning
from seamline.frameworks.torch.frozen.fast import Precision
from seamline.frameworks.torch.frozen.folder import new_path
from seamline.frameworks.torch.frozen.part import FrozenPart
from seamline.frameworks.torch.frozen.pipeline import ROWS_TRIED, varying
from seamline.frameworks.torch.world import TorchWorld


@dataclass(frozen=True, slots=True)
class Probe:
    """A model, how the loop calls it with ``(inputs, targets)``, and how it brings these onto the device."""

    model: nn.Module
    run: Callable[[Any], Any]
    put: Callable[[Any], Any]
    tuning: Tuning


class Acceleration:
    """Looks for a frozen part with the first batch, and from then on hands out batches that suit it.

    All workers compute it in the way that the first has chosen, and those of one machine share what they remember.
    """

    def __init__(self, probe: Probe, shard: Shard, job: Job, world: TorchWorld) -> None:
        self._probe = probe
        self._shard = shard
        self._job = job
        self._world = world
        self._precision = _precision(probe.tuning)
        several = probe.tuning.cache_frozen is not False and job.epochs > 1
        self._looked = probe.tuning.frozen == "off" or (self._precision == "fp32" and not several)
        self._part: FrozenPart | None = None
        self._caching = False

    def __enter__(self) -> Acceleration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._part is not None:
            self._part.remove()

    def batches(self, epoch: int, first_step: int, plain: Iterable[Batch]) -> Iterator[Batch]:
        """One worker's batches of an epoch: ``plain``, or the same without reading what is known."""
        batches: Iterator[Batch] = iter(plain)
        if not self._looked:
            first = next(batches, None)
            if first is None:
                return
            first = self._placed(first)
            ahead = self._places(epoch, first_step)
            self._look(first, ahead[0] if ahead else None)
            batches = itertools.chain([first], batches)
        places = self._places(epoch, first_step) if self._caching else None
        if self._part is None or places is None:
            yield from batches
            return
        placed = ((batch.inputs, batch.targets) for batch in map(self._placed, batches))
        pairs = self._part.epoch([place.numbers for place in places], lambda: placed, self._load)
        for place, (inputs, targets) in zip(places, pairs, strict=True):
            yield Batch(inputs, targets, place.start, place.rows, place.batch_rows)

    def _places(self, epoch: int, first_step: int) -> list[Place] | None:
        """The row numbers of an epoch's batches, where they are numbers of rows."""
        rows = numbered(self._shard)
        if rows is None:
            return None
        places = list(rows.places(epoch, first_step))
        return places if all(_are_numbers(place.numbers, rows.count) for place in places) else None

    def _placed(self, batch: Batch) -> Batch:
        inputs, targets = self._probe.put((batch.inputs, batch.targets))
        return Batch(inputs, targets, batch.start, batch.rows, batch.batch_rows, batch.fingerprint)

    def _load(self, numbers: Sequence[int]) -> Any:
        rows = numbered(self._shard)
        assert rows is not None
        return self._probe.put(rows.read(numbers))

    def _say(self, line: str) -> None:
        if self._world.rank == 0:
            self._world.report(Note(line))

    def _look(self, first: Batch, place: Place | None) -> None:
        self._looked = True
        part = self._find(first)
        caching = self._cache(part, place)
        if part is not None and (caching or not part.way.exact):
            part.install()
            self._part = part
            self._caching = caching

    def _find(self, first: Batch) -> FrozenPart | None:
        """The part that the first worker finds; the others look for the same."""
        if all(parameter.requires_grad for parameter in self._probe.model.parameters()):
            return None
        model, run, pair = self._probe.model, self._probe.run, (first.inputs, first.targets)

        def find(way: str | None) -> FrozenPart | None:
            return FrozenPart.of(model, pair, run, precision=self._precision, way=way, say=self._say)

        leader = self._world.rank == 0
        part = find(None) if leader else None
        way = self._world.all_gather(part.way.name if part is not None else None)[0]
        return part if leader or way is None else find(way)

    def _cache(self, part: FrozenPart | None, place: Place | None) -> bool:
        """Agree with the other workers on whether to remember features, and where."""
        if all(parameter.requires_grad for parameter in self._probe.model.parameters()):
            return False
        problem = self._problem(part, place)
        # Features are exact for batches of one size, so workers with parts of other sizes keep their own.
        group = self._world.host, len(place.numbers) if place is not None else 0
        everyone = self._world.all_gather((group, new_path(), problem))
        problems = [theirs for _, _, theirs in everyone if theirs is not None]
        if problems or part is None:
            if part is not None and problems[0]:
                self._say(f"frozen: {part.described} is not cached: {problems[0]}")
            return False
        folder = next(path for others, path, _ in everyone if others == group)
        rows = numbered(self._shard)
        assert rows is not None
        return part.cache(rows.count, folder, exact=part.way.exact)

    def _problem(self, part: FrozenPart | None, place: Place | None) -> str | None:
        """Why features are not to be remembered; empty if that needs no word."""
        wish = self._probe.tuning.cache_frozen
        if part is None or wish is False or self._job.epochs == 1:
            return ""
        if place is None:
            return "its rows have no numbers by which they could be found again"
        begin = time.perf_counter()
        numbers = [int(number) for number in place.numbers[:ROWS_TRIED]]
        problem = varying(self._load, numbers)
        load_s = (time.perf_counter() - begin) / 3 / len(numbers) * len(place.numbers)
        if problem is not None:
            return problem
        if wish == "auto" and not part.saves_time(load_s):
            return "computing it again is as quick as reading its features"
        return None


def _precision(tuning: Tuning) -> Precision:
    """What the user allows: the plain run's bits, unless they train in bf16 or ask for something else."""
    if tuning.frozen == "auto" or tuning.frozen == "off":
        return "auto" if tuning.precision == "bf16" else "fp32"
    return tuning.frozen


def _are_numbers(rows: Any, count: int) -> bool:
    """Whether a sampler gives numbers of rows; it may as well give names."""
    found = np.asarray(rows)
    return found.dtype.kind in "iu" and found.ndim == 1 and bool((found >= 0).all() and (found < count).all())
