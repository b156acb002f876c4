"""One Spark job in the background, with a name by which it is cancelled."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext


class Job:
    """Runs ``action`` (which starts a Spark job and waits for it) in a thread with a job group of its own."""

    def __init__(self, context: SparkContext, what: str, action: Callable[[], Any]) -> None:
        from pyspark import InheritableThread

        self.answer: Any = None
        self.error: Exception | None = None
        self._context = context
        self._group = f"seamline-{secrets.token_hex(8)}"
        self._what = what
        self._action = action
        self._thread: threading.Thread = InheritableThread(target=self._run, daemon=True)
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
            self._context.cancelJobGroup(self._group)

    def reason(self) -> str:
        """Why Spark gave up, in one line and without its stack; empty if it did not."""
        from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]

        if isinstance(self.error, (OSError, Py4JNetworkError)):
            return "the JVM of the Spark session has ended or was killed; start the program again"
        return reason(str(self.error)) if self.error else ""

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._what, interruptOnCancel=True)
            self.answer = self._action()
        except Exception as error:  # kept for whoever waits: it is one of several signs of what went wrong
            self.error = error


def reason(text: str) -> str:
    """The sentence of a Spark error that says what happened."""
    for pattern in (
        r"ExecutorLostFailure \((executor \S+ [^)]*?)\)",
        r"(Executor heartbeat timed out[^\n]*)",
        r"(Python worker exited unexpectedly[^\n]*)",
        r"Most recent failure: [^\n]*?\): ([^\n]*)",
        r"(?:SparkException|Error): ([^\n]*)",
    ):
        found = re.search(pattern, text)
        if found:
            return found[1].strip().rstrip(":")
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
