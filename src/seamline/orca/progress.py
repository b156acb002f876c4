"""What the driver shows while a run goes on: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from seamline.core.events import Note, Progress
from seamline.core.profile import NOTABLE_SHARE, Pace, waited_for

_LINE_EVERY_S = 30.0
_WORKERS_SHOWN = 8
"""Lines for workers; where there are more, those that the others wait for most have them."""


class Display(Protocol):
    """Something that shows progress, from ``with`` to its end; also a ``Listener``."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def __call__(self, rank: int, message: object) -> None: ...


def display(verbose: int) -> Display:
    """Nothing for 0; otherwise what the place we print to can show."""
    if verbose == 0:
        return Silence()
    console = Console()
    return Bars(console) if console.is_terminal or console.is_jupyter else Lines()


class Silence:
    """Shows nothing."""

    def __enter__(self) -> Silence:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, rank: int, message: object) -> None: ...


class Lines(Silence):
    """One line for each epoch, and one now and then within a long epoch."""

    def __init__(self) -> None:
        self._printed = time.monotonic()

    def __call__(self, rank: int, message: object) -> None:
        if isinstance(message, Note):
            print(message.text)
        if not isinstance(message, Progress):
            return
        now = time.monotonic()
        if message.epoch_over:
            print(f"{_title(message)}: {_numbers(message)} ({message.rows_per_s:,.0f} rows/s{_waits(message)})")
            self._printed = now
        elif now - self._printed > _LINE_EVERY_S:
            of = f" of {message.steps}" if message.steps else ""
            print(f"{_title(message)}: step {message.step}{of}, loss {message.loss:.4f}")
            self._printed = now


class Workers:
    """The last word of each worker, as lines; one that works alone says nothing."""

    def __init__(self) -> None:
        self._paces: dict[int, Pace] = {}

    def note(self, rank: int, pace: Pace) -> None:
        self._paces[rank] = pace

    def lines(self) -> list[str]:
        waited = waited_for({rank: pace.communication for rank, pace in self._paces.items()})
        found = [self._line(rank, waited[rank]) for rank in self._shown(waited)]
        left = len(self._paces) - len(found)
        return [*found, f"  and {left} more workers"] if left else found

    def _shown(self, waited: dict[int, float]) -> list[int]:
        ranks = sorted(self._paces)
        if len(ranks) <= _WORKERS_SHOWN:
            return ranks
        return sorted(sorted(ranks, key=lambda rank: -waited[rank])[: _WORKERS_SHOWN - 1])

    def _line(self, rank: int, waited: float) -> str:
        pace = self._paces[rank]
        word = f"  the others wait for it {waited:.0%} of the time" if waited >= NOTABLE_SHARE else ""
        return (
            f"  worker {rank}  {pace.rows_per_s:>9,.0f} rows/s  data {pace.data:>4.0%}  "
            f"compute {pace.compute:>4.0%}  peers {pace.communication:>4.0%}{word}"
        )


class _BarsAndWorkers(RichProgress):
    """Bars, and below them a line for each worker."""

    workers: Workers | None = None

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        if self.workers is not None:
            yield from (Text(line, style="dim", no_wrap=True) for line in self.workers.lines())


class Bars(Silence):
    """A live bar for each epoch; finished ones stay with their numbers. Below them is how each worker gets on."""

    def __init__(self, console: Console) -> None:
        self._bars = _BarsAndWorkers(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[numbers]}"),
            console=console,
        )
        self._bars.workers = self._workers = Workers()
        self._epochs: dict[int, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.workers = None
        self._bars.stop()

    def __call__(self, rank: int, message: object) -> None:
        if isinstance(message, Note):
            self._bars.console.print(message.text, markup=False, highlight=False)
        if isinstance(message, Pace):
            self._workers.note(rank, message)
        if not isinstance(message, Progress):
            return
        if message.epoch not in self._epochs:
            self._epochs[message.epoch] = self._bars.add_task(_title(message), total=message.steps, numbers="")
        total = message.step if message.epoch_over else message.steps
        numbers = _numbers(message) + _waits(message)
        self._bars.update(self._epochs[message.epoch], completed=message.step, total=total, numbers=numbers)


def _title(message: Progress) -> str:
    return f"epoch {message.epoch + 1}/{message.epochs}"


def _waits(message: Progress) -> str:
    return "".join(f"; {each}" for each in message.stragglers[:1])


def _numbers(message: Progress) -> str:
    shown = {name: value for name, value in message.logs.items() if name not in ("epoch", "lr")}
    return "  ".join(f"{name} {value:.4f}" for name, value in (shown or {"loss": message.loss}).items())
