"""Every error that Seamline raises on purpose.

SeamlineError
├── WorkerError            a worker raised or died; carries its rank and its own traceback
├── RunTimeoutError        the workers took longer than they were given
├── PeerLostError          a worker waits for a peer that can never answer
├── UnpicklableError       something cannot travel to the workers; names the variable
├── CheckpointError        a checkpoint cannot be written, found or used
├── NonFiniteLossError     the loss became NaN or infinite
├── LedgerError            a row was lost or trained twice
├── ExportError            a model cannot be brought into another form
├── UnreadableImageError   an image file is damaged; names it
└── UnavailableError       an optional dependency is missing; carries the command that installs it

Bad arguments are plain ``ValueError`` and ``TypeError``.
"""

from __future__ import annotations


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


class RunTimeoutError(SeamlineError, TimeoutError):
    """The workers took longer than they were given, and were stopped."""


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


class ExportError(SeamlineError):
    """A model cannot be exported, saved or loaded in the form that was asked for."""


class UnavailableError(SeamlineError, ImportError):
    """A feature needs a package that is not installed."""

    @classmethod
    def needs(cls, package: str, extra: str) -> UnavailableError:
        """The usual sentence: what is missing and the command that brings it."""
        return cls(f'{package} is not installed; pip install "seamline[{extra}]"')
