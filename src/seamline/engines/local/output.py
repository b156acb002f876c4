"""What a worker prints, passed on line by line with its rank in front."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Literal

_CHUNKS_AT_A_TIME = 16


class Output:
    """One stream of one worker; reads what is there, never waits."""

    def __init__(self, fd: int, rank: int, stream: Literal["stdout", "stderr"]) -> None:
        self.fd = fd
        self.open = True
        self._stream = stream
        self._prefix = f"[worker {rank}] "
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
        shown = line.rstrip("\r").rpartition("\r")[2]
        target = sys.stdout if self._stream == "stdout" else sys.stderr
        target.write(f"{self._prefix}{shown}\n")
        target.flush()
