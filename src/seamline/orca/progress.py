"""What the driver shows while a run goes on: bars in a terminal or notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from seamline.core.events import Note, Progress

_LINE_EVERY_S = 30.0


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
            print(f"{_title(message)}: {_numbers(message)} ({message.rows_per_s:,.0f} rows/s)")
            self._printed = now
        elif now - self._printed > _LINE_EVERY_S:
            of = f" of {message.steps}" if message.steps else ""
            print(f"{_title(message)}: step {message.step}{of}, loss {message.loss:.4f}")
            self._printed = now


class Bars(Silence):
    """A live bar for each epoch; finished ones stay with their numbers."""

    def __init__(self, console: Console) -> None:
        self._bars = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            TextColumn("{task.fields[numbers]}"),
            console=console,
        )
        self._epochs: dict[int, TaskID] = {}

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, rank: int, message: object) -> None:
        if isinstance(message, Note):
            self._bars.console.print(message.text, markup=False, highlight=False)
        if not isinstance(message, Progress):
            return
        if message.epoch not in self._epochs:
            self._epochs[message.epoch] = self._bars.add_task(_title(message), total=message.steps, numbers="")
        total = message.step if message.epoch_over else message.steps
        self._bars.update(self._epochs[message.epoch], completed=message.step, total=total, numbers=_numbers(message))


def _title(message: Progress) -> str:
    return f"epoch {message.epoch + 1}/{message.epochs}"


def _numbers(message: Progress) -> str:
    shown = {name: value for name, value in message.logs.items() if name not in ("epoch", "lr")}
    return "  ".join(f"{name} {value:.4f}" for name, value in (shown or {"loss": message.loss}).items())
