"""One Spark job in the background, with a name by which it is cancelled."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any, Protocol

_LOSSES = (
    r"ExecutorLostFailure \((executor \S+ [^)]*?)\)",
    r"(Executor heartbeat timed out[^\n]*)",
    r"(Python worker exited unexpectedly[^\n]*)",
)
"""How Spark says that a process is gone."""


class Mark(Protocol):
    """By what a session knows one job."""

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        """A thread that may start jobs as the present one would."""
        ...

    def put(self) -> None:
        """Mark the jobs that this thread starts from now on."""
        ...

    def cancel(self) -> None:
        """End the jobs that are marked."""
        ...

    def session_lost(self, error: Exception) -> str | None:
        """What happened to the session itself, if that is what the error tells."""
        ...


class Job:
    """Runs ``action`` (which starts a Spark job and waits for it) in a thread of its own."""

    def __init__(self, mark: Mark, action: Callable[[], Any]) -> None:
        self.answer: Any = None
        self.error: Exception | None = None
        self._mark = mark
        self._action = action
        self._thread = mark.thread(self._run)
        self._thread.daemon = True
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, timeout_s: float) -> bool:
        """Whether it has ended by then."""
        self._thread.join(timeout_s)
        return self.ended

    def cancel(self) -> None:
        if not self.ended:
            self._mark.cancel()

    @property
    def lost(self) -> bool:
        """Whether Spark gave up because executors or their Python processes ended, again and again."""
        return self.error is not None and any(re.search(pattern, str(self.error)) for pattern in _LOSSES)

    @property
    def session_lost(self) -> str | None:
        """What happened to the session itself, without which there is nothing to go on with."""
        return None if self.error is None else self._mark.session_lost(self.error)

    def reason(self) -> str:
        """Why Spark gave up, in one line and without its stack; empty if it did not."""
        return "" if self.error is None else self.session_lost or reason(str(self.error))

    def _run(self) -> None:
        try:
            self._mark.put()
            self.answer = self._action()
        except Exception as error:  # kept for whoever waits: it is one of several signs of what went wrong
            self.error = error


def reason(text: str) -> str:
    """The sentence of a Spark error that says what happened."""
    for pattern in (
        *_LOSSES,
        r"Most recent failure: [^\n]*?\): ([^\n]*)",
        r"(?:SparkException|Error): ([^\n]*)",
    ):
        found = re.search(pattern, text)
        if found:
            return found[1].strip().rstrip(":")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
