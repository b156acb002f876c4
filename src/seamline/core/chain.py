"""What becomes of one shard: functions one after the other, in whichever process has the shard.

An item is a tuple of leaves, each the outcome of what came before: one leaf for a shard as it was given, two for a
pair, one from every shard after an exchange.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from seamline.core import rows
from seamline.core.collection import Function, Gather, Scatter
from seamline.core.errors import RowsError, SeamlineError, ShardError
from seamline.core.failure import described, restored

_numbers = itertools.count()

Packed = TypeVar("Packed")


@dataclass(frozen=True, slots=True)
class Failure:
    """A function that raised: of which step, for which shard, and from which row on as far as that is known."""

    step: int
    shard: int
    function: str
    rows: int | None
    first_row: int | None
    traceback: str
    error: bytes | None

    def raise_(self) -> None:
        """Raise it on the driver; an error of ours comes out as itself."""
        failure = ShardError(self.shard, self.function, self.first_row, self.rows, self.traceback)
        cause = restored(self.error)
        if isinstance(cause, SeamlineError):
            raise cause from failure
        raise failure from cause


@dataclass(frozen=True, slots=True)
class Outcome:
    """A shard, or why there is none; with the number of rows that each step was given."""

    value: Any = None
    rows: Mapping[int, int | None] = field(default_factory=dict)
    failure: Failure | None = None


class Start(Protocol):
    """How the leaves of an item become the shard that a chain begins with."""

    @property
    def width(self) -> int:
        """The number of leaves."""
        ...

    def open(self, index: int, leaves: Sequence[Outcome]) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Single:
    """The only leaf is the shard."""

    width: int = 1

    def open(self, index: int, leaves: Sequence[Outcome]) -> Outcome:
        return leaves[0]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two chains, and the shard is what both give."""

    left: Chain
    right: Chain

    @property
    def width(self) -> int:
        return self.left.start.width + self.right.start.width

    def open(self, index: int, leaves: Sequence[Outcome]) -> Outcome:
        middle = self.left.start.width
        both = self.left.run(index, leaves[:middle]), self.right.run(index, leaves[middle:])
        merged = {**both[0].rows, **both[1].rows}
        for outcome in both:
            if outcome.failure is not None:
                return Outcome(rows=merged, failure=outcome.failure)
        return Outcome((both[0].value, both[1].value), merged)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A piece of every shard before an exchange, put together by a function."""

    gather: Gather
    width: int

    def open(self, index: int, leaves: Sequence[Outcome]) -> Outcome:
        failure = first_failure(leaves)
        if failure is not None:
            return Outcome(failure=failure)
        pieces = [leaf.value for leaf in leaves]
        return _try(Outcome(), -1, index, self.gather, lambda: self.gather(index, pieces))


@dataclass(frozen=True, slots=True)
class Chain:
    """A start and the functions that follow; it travels to where the shards are."""

    start: Start = Single()
    steps: tuple[tuple[int, Function], ...] = ()

    def then(self, function: Function) -> Chain:
        return replace(self, steps=(*self.steps, (next(_numbers), function)))

    def run(self, index: int, leaves: Sequence[Outcome]) -> Outcome:
        outcome = self.start.open(index, leaves)
        for step, function in self.steps:
            if outcome.failure is not None:
                break
            outcome = _apply(outcome, step, index, function)
        return outcome

    @property
    def idle(self) -> bool:
        """Whether the only leaf is already what comes out."""
        return not self.steps and isinstance(self.start, Single)


@dataclass(frozen=True, slots=True)
class Scattering:
    """A chain, and what takes its shards apart."""

    chain: Chain
    scatter: Scatter
    count: int
    step: int = field(default_factory=lambda: next(_numbers))

    def run(self, index: int, leaves: Sequence[Outcome]) -> list[Outcome]:
        """One leaf for each of the new shards; all of them know why, if there is nothing to give."""
        outcome = self.chain.run(index, leaves)
        if outcome.failure is None:
            outcome = _apply(outcome, self.step, index, self._pieces)
        if outcome.failure is not None:
            return [outcome] * self.count
        return [Outcome(piece, outcome.rows) for piece in outcome.value]

    def _pieces(self, index: int, shard: Any) -> list[Any]:
        pieces = list(self.scatter(index, shard))
        if len(pieces) != self.count:
            raise ValueError(f"{len(pieces)} pieces for {self.count} shards; give one to each")
        return pieces


def packed(outcome: Outcome, index: int, pack: Callable[[Outcome], Packed]) -> Packed:
    """The outcome ready to travel, or the failure that it cannot."""
    try:
        return pack(outcome)
    except SeamlineError as error:
        text, body = described(error)
        failure = Failure(-1, index, "the result", None, None, text, body)
        return pack(Outcome(rows=outcome.rows, failure=failure))


def first_failure(outcomes: Sequence[Outcome]) -> Failure | None:
    """The failure of the first shard that has one, with the place of its rows among those of all shards."""
    for position, outcome in enumerate(outcomes):
        failure = outcome.failure
        if failure is None:
            continue
        before = [earlier.rows.get(failure.step) for earlier in outcomes[:position]]
        known = [number for number in before if number is not None]
        if failure.first_row is not None or len(known) < failure.shard or failure.shard != position:
            return failure
        return replace(failure, first_row=sum(known))
    return None


def values(outcomes: Sequence[Outcome]) -> list[Any]:
    """The shards, or the first failure raised."""
    failure = first_failure(outcomes)
    if failure is not None:
        failure.raise_()
    return [outcome.value for outcome in outcomes]


def _apply(outcome: Outcome, step: int, index: int, function: Function) -> Outcome:
    value = outcome.value
    counted = {**outcome.rows, step: _rows(value)}
    return _try(replace(outcome, rows=counted), step, index, function, lambda: function(index, value))


def _try(before: Outcome, step: int, index: int, function: Callable[..., Any], call: Callable[[], Any]) -> Outcome:
    try:
        return Outcome(call(), before.rows)
    except Exception as error:
        text, body = described(_without_us(error))
        failure = Failure(step, index, _name(function), before.rows.get(step), None, text, body)
        return Outcome(rows=before.rows, failure=failure)


def _without_us(error: Exception) -> Exception:
    """The error with a traceback that begins where the function does."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None and place.tb_frame.f_code.co_filename == __file__:
        place = place.tb_next
    return error.with_traceback(place)


def _rows(value: Any) -> int | None:
    try:
        return rows.count(value)
    except RowsError:  # ragged: whoever needs rows says so, others may not mind
        return None


def _name(function: Any) -> str:
    """What the user calls it, below the layers that were put around it."""
    while not hasattr(function, "__name__") or hasattr(function, "func"):
        inner = getattr(function, "func", None)
        if inner is None:
            return type(function).__name__
        function = inner
    return str(function.__name__)
