"""Every error that Seamline raises on purpose.

SeamlineError
├── WorkerError            a worker raised or died; carries its rank and its own traceback
│   └── WorkerLostError    it died, through no error of the program: what a run may be started again after
├── RunTimeoutError        the workers took longer than they were given
├── HangError              workers wait for one that does not come; says which, and what each was doing
├── PeerLostError          a worker waits for a peer that can never answer
├── UnpicklableError       something cannot travel to the workers; names the variable
├── CheckpointError        a checkpoint cannot be written, found or used
├── NonFiniteLossError     the loss became NaN or infinite
├── LedgerError            a row was lost or trained twice
├── BadRowError            a row of a file cannot be parsed; names file and line
├── MixedSchemasError      files do not agree on a column; names both
├── DamagedFileError       a file of records is cut off or changed; names it
├── DataError              a column holds what cannot be read; names it
├── ExportError            a model cannot be brought into another form
├── UnreadableImageError   an image file is damaged; names it
├── ShardError             a function failed on one shard; names the shard, its rows and the function
├── RowsError              shards do not have the rows that an operation needs
├── ColumnError            a table has no column of that name; says which one is near
└── UnavailableError       an optional dependency is missing; carries the command that installs it

Bad arguments are plain ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SeamlineError(Exception):
    """Base class, so that one name catches everything of ours."""


class WorkerError(SeamlineError):
    """One worker failed, and the others were stopped.

    Example: the data set's ``__getitem__`` raises on worker 1. ``rank`` is 1, ``traceback`` is what
    worker 1 would have printed, and ``__cause__`` is its exception where that could be pickled.
    """

    def __init__(self, rank: int | None, traceback: str) -> None:
        super().__init__(rank, traceback)
        self.rank = rank
        self.traceback = traceback

    def __str__(self) -> str:
        who = "a worker" if self.rank is None else f"worker {self.rank}"
        return f"{who} failed, and the others were stopped.\n\n{self.traceback}"


class WorkerLostError(WorkerError):
    """The process of a worker has ended without a word, or its machine was lost or taken away (``preempted``)."""

    def __init__(self, rank: int | None, traceback: str, preempted: bool = False) -> None:
        super().__init__(rank, traceback)
        self.args = (rank, traceback, preempted)
        self.preempted = preempted


class RunTimeoutError(SeamlineError, TimeoutError):
    """The workers took longer than they were given, and were stopped."""


class HangError(SeamlineError, TimeoutError):
    """Workers have waited too long for one of them, and were stopped."""


class PeerLostError(SeamlineError):
    """A worker waits for a peer that has died or finished.

    It is a consequence, never a cause: an engine that sees it looks for the worker that failed first.
    """


class UnpicklableError(SeamlineError, TypeError):
    """A task or its data cannot be sent to the workers."""


class CheckpointError(SeamlineError):
    """A checkpoint cannot be written, found or used."""


class NonFiniteLossError(SeamlineError, ArithmeticError):
    """The loss became NaN or infinite, and the run was asked to stop then."""


class LedgerError(SeamlineError):
    """The account of trained rows does not add up."""


class DataError(SeamlineError, ValueError):
    """A column holds values that make no array, or its rows do not lie where a worker can read them."""


class ExportError(SeamlineError):
    """A model cannot be exported, saved or loaded in the form that was asked for."""


class ShardError(SeamlineError):
    """A function that was sent to shards raised on one of them.

    Example: ``negative`` meets a text in the third file. ``shard`` is 2, ``first_row`` 2000 and ``rows`` 1000 where
    these are known, ``traceback`` is what its process would have printed, ``__cause__`` the exception where it pickles.
    """

    def __init__(self, shard: int, function: str, first_row: int | None, rows: int | None, traceback: str) -> None:
        super().__init__(shard, function, first_row, rows, traceback)
        self.shard = shard
        self.function = function
        self.first_row = first_row
        self.rows = rows
        self.traceback = traceback

    def __str__(self) -> str:
        return f"{self.function} failed on shard {self.shard}{self._place()}.\n\n{self.traceback}"

    def _place(self) -> str:
        if self.rows is None:
            return ""
        if self.first_row is None or self.rows == 0:
            return f" ({self.rows} rows)"
        return f" (rows {self.first_row} to {self.first_row + self.rows - 1})"


class RowsError(SeamlineError, ValueError):
    """Shards do not have the rows that an operation needs: ragged, zipped unevenly, or none at all."""


class ColumnError(SeamlineError, ValueError):
    """A table has no column of that name."""

    @classmethod
    def missing(cls, name: object, known: Iterable[object]) -> ColumnError:
        """The usual sentence: what there is, and what may have been meant."""
        names = [str(each) for each in known]
        close = difflib.get_close_matches(str(name), names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        return cls(f"no column {name!r}; there are {', '.join(map(repr, names))}{hint}")


class UnavailableError(SeamlineError, ImportError):
    """A feature needs a package that is not installed."""

    @classmethod
    def needs(cls, package: str, extra: str) -> UnavailableError:
        """The usual sentence: what is missing and the command that brings it."""
        return cls(f'{package} is not installed; pip install "seamline[{extra}]"')
