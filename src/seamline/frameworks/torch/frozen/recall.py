"""Epochs out of memory: what was computed once is not computed, nor read, again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from seamline.core import rng
from seamline.frameworks.torch.frozen.feeding import Feeding, Load, LoadRows, as_numbers, from_the
from seamline.frameworks.torch.frozen.site import Tensors
from seamline.frameworks.torch.frozen.stand_in import Numbers

FEW_MISSING = 0.25
"""Up to this share of an epoch's rows are loaded one batch at a time, when all the others are known."""


class Recall:
    """Hands out the batches of each epoch, real ones until all their rows are known.

    Before an epoch comes from memory, one of its batches is loaded and compared with what is remembered; if the data
    has changed, nothing is believed any more.
    """

    def __init__(
        self, feeding: Feeding, compute: Callable[[Tensors], Tensors], farthest: float, say: Callable[[str], Any]
    ) -> None:
        """``farthest`` is how far the features of the spot check may be from those remembered."""
        self.on = True
        self.size = feeding.cache.size
        self._feeding = feeding
        self._compute = compute
        self._farthest = farthest
        self._say = say
        self._epochs = 0

    def remember(self, inputs: Tensors, features: Tensors) -> None:
        """Features that were just computed."""
        problem = self._feeding.remember(inputs, features) if self.on else None
        if problem is not None:
            self._drop(problem)

    def adopt(self, batch: Any, numbers: Sequence[int] | Numbers) -> None:
        """Remember what will be computed of a batch that somebody else has loaded."""
        if self.on and not self._feeding.hand_out(batch, as_numbers(numbers)):
            self._drop("rows have different forms")

    def close(self) -> None:
        self.on = False
        self._feeding.cache.close()

    def epoch(
        self, batches: Sequence[Sequence[int]], load: Load, load_rows: LoadRows | None, trusted: Callable[[], bool]
    ) -> Iterator[Any]:
        """``trusted`` says, before each batch, whether features may still be given instead of rows."""
        self._epochs += 1
        numbers = [as_numbers(indices) for indices in batches]
        if trusted() and self._known(numbers, load, load_rows):
            yield from self._recalled(numbers, load, load_rows, trusted)
        else:
            yield from self._loaded(numbers, load(), trusted)

    def _known(self, numbers: Sequence[Numbers], load: Load, load_rows: LoadRows | None) -> bool:
        """Whether the rows of an epoch are there, but for a few, and still those of the data set."""
        if self.on and self._feeding.cache.dropped:
            self._drop("another worker has found that the data changes")
        suitable = [each for each in numbers if self.on and self._feeding.suits(each)]
        if not suitable:
            return False
        everything = np.concatenate(suitable)
        bearable = FEW_MISSING * len(everything) if load_rows is not None else 0
        if len(self._feeding.cache.missing(everything)) > bearable:
            return False
        complete = [n for n, each in enumerate(numbers) if not len(self._feeding.cache.missing(each))]
        if not complete:
            return False
        chosen = complete[0 if load_rows is None else rng.derive(self._epochs) % len(complete)]
        batch = _one_batch(chosen, numbers[chosen], load, load_rows)()
        different = self._feeding.difference(batch, numbers[chosen], self._compute, self._farthest)
        if different is not None:
            self._drop(f"the data set has changed: {different} differ from what was read before")
        return different is None

    def _recalled(
        self, numbers: Sequence[Numbers], load: Load, load_rows: LoadRows | None, trusted: Callable[[], bool]
    ) -> Iterator[Any]:
        for place, some in enumerate(numbers):
            if not self.on or not trusted():
                yield from self._loaded(numbers[place:], from_the(place, load), trusted)
                return
            batch = _one_batch(place, some, load, load_rows)
            known = self._feeding.suits(some) and self._completed(some, load_rows)
            yield self._feeding.made_up(some, batch) if known else batch()

    def _completed(self, numbers: Numbers, load_rows: LoadRows | None) -> bool:
        """Whether all these rows are known, once those that are not were looked up."""
        missing = np.unique(self._feeding.cache.missing(numbers))
        if not len(missing):
            return True
        if load_rows and self._feeding.fill_in(load_rows(missing.tolist()), missing, self._compute):
            return True
        self._drop("rows have different forms")
        return False

    def _loaded(self, numbers: Sequence[Numbers], batches: Iterable[Any], trusted: Callable[[], bool]) -> Iterator[Any]:
        for some, batch in zip(numbers, batches, strict=True):
            if trusted():
                self.adopt(batch, some)
            yield batch

    def _drop(self, reason: str) -> None:
        self._feeding.cache.drop()
        self.close()
        self._say(f"features are not cached any more: {reason}")


def _one_batch(place: int, numbers: Numbers, load: Load, load_rows: LoadRows | None) -> Callable[[], Any]:
    if load_rows is not None:
        return lambda: load_rows(numbers.tolist())
    return lambda: next(from_the(place, load))
