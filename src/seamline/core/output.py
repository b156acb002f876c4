"""What a worker prints, passed on line by line with its rank in front."""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Callable
from typing import Literal

Stream = Literal["stdout", "stderr"]
Teller = Callable[[int, Stream, str], None]
"""Called with a worker's rank, its stream and a line without its end."""

_CHUNKS_AT_A_TIME = 16


class Output:
    """One stream of one worker; reads what is there, never waits."""

    def __init__(self, fd: int, rank: int, stream: Stream, tell: Teller) -> None:
        self.fd = fd
        self.open = True
        self._rank = rank
        self._stream = stream
        self._tell = tell
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._line = ""
        os.set_blocking(fd, False)

    def pump(self) -> None:
        """Pass on the complete lines that have arrived, but not without end from one that never stops."""
        for _ in range(_CHUNKS_AT_A_TIME):
            if not self.open:
                return
            try:
                chunk = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            self.open = bool(chunk)
            *lines, self._line = (self._line + self._decode(chunk, final=not chunk)).split("\n")
            for line in lines:
                self._print(line)

    def finish(self) -> None:
        """Pass on the rest, a line without an end included."""
        self.pump()
        if self._line:
            self._print(self._line)
            self._line = ""

    def _print(self, line: str) -> None:
        # A progress bar rewrites its line; what counts is what it would have shown last.
        self._tell(self._rank, self._stream, line.rstrip("\r").rpartition("\r")[2])


def print_with_rank(rank: int, stream: Stream, line: str) -> None:
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(f"[worker {rank}] {line}\n")
    target.flush()
