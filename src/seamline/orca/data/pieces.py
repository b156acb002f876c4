"""Parts of files that are read apart: even shares of all bytes, cut where a line ends."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Protocol

from seamline.orca.data.files import File
from seamline.orca.data.sharing import even_shares

_WINDOW = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes of a file from ``start`` to ``stop``; its header, ``head``, is put in front if they lie further on."""

    file: File
    start: int
    stop: int
    head: bytes = b""

    @property
    def first(self) -> bool:
        return self.start == 0

    @property
    def last(self) -> bool:
        return self.stop >= self.file.size

    @property
    def whole(self) -> bool:
        return self.first and self.last

    def open(self) -> IO[bytes]:
        return self.file.open() if self.whole else io.BufferedReader(_Range(self), 1 << 20)

    def read(self, compression: str | None = None) -> bytes:
        """All of it; of a compressed file there is only one piece."""
        if self.whole:
            return self.file.text(compression)
        with self.open() as stream:
            return stream.read()

    def lines_before(self) -> int:
        """Line ends in the file up to where the piece starts; reads all of that, so only to explain an error."""
        count, left = 0, self.start
        with self.file.open() as stream:
            while left and (block := stream.read(min(left, 1 << 22))):
                count += block.count(b"\n")
                left -= len(block)
        return count


class Cutting(Protocol):
    """How a file can be cut."""

    @property
    def head(self) -> bytes:
        """What every part of the file but the first has to be preceded by."""
        ...

    def row_start(self, file: File, position: int) -> int:
        """Where a row starts soon after a position; the file's size if none does."""
        ...


class Lines:
    """Cutting where every line end is the end of a row."""

    head = b""

    def row_start(self, file: File, position: int) -> int:
        size = _WINDOW
        while position < file.size:
            window = file.read(position, size)
            found = window.find(b"\n")
            if found >= 0:
                return position + found + 1
            if len(window) < size:
                break
            size *= 4
        return file.size


class _Range(io.RawIOBase):
    """A piece as a stream, so that no more than a buffer of it is in memory."""

    def __init__(self, piece: Piece) -> None:
        self._head = memoryview(b"" if piece.first else piece.head)
        self._stream = piece.file.open(piece.start)
        self._left = piece.stop - piece.start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        block = self._stream.read(min(len(buffer), self._left))
        buffer[: len(block)] = block
        self._left -= len(block)
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


def share(files: Sequence[File], count: int, cutting: Callable[[File], Cutting | None]) -> list[list[Piece]]:
    """At most ``count`` lists of pieces, of about as many bytes each, in the order of the files.

    ``cutting(file)`` says how a file can be cut, or ``None`` if it has to stay whole.
    """
    total = sum(file.size for file in files)
    pieces = []
    before = 0
    for file in files:
        borders = [total * number // count - before for number in range(1, count)]
        inside = [border for border in borders if 0 < border < file.size]
        how = cutting(file) if inside else None
        cuts = sorted({0, file.size, *(how.row_start(file, border) for border in inside if how)})
        head = how.head if how else b""
        pieces += [Piece(file, start, stop, head) for start, stop in pairwise(cuts if file.size else (0, 0))]
        before += file.size
    return even_shares(pieces, [piece.stop - piece.start for piece in pieces], count)
