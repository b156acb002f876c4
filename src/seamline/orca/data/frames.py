"""Tables read in parts where the shards lie, with column types that all parts agree on."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import pandas as pd

from seamline.orca.data.bad_rows import BadRow, OnError, report
from seamline.orca.data.column_types import Column, Table, agree, conform
from seamline.orca.data.files import File
from seamline.orca.data.pieces import Cutting, Piece, share
from seamline.orca.xshards import XShards

_COPY_ON_WRITE = int(pd.__version__.partition(".")[0]) >= 3


@dataclass(frozen=True, slots=True)
class Part:
    """What was read of one piece; no frame if it has not even a header. It never changes, so nobody needs a copy."""

    piece: Piece
    frame: pd.DataFrame | None = None
    bad: tuple[BadRow, ...] = ()
    cut_within_a_row: bool = False

    def __deepcopy__(self, memo: dict[int, object]) -> Part:
        return self

    def account(self) -> Account:
        table = None if self.frame is None else Table.of(self.piece.file.name, self.frame)
        return Account(replace(self.piece, head=b""), table, self.bad, self.cut_within_a_row)


@dataclass(frozen=True, slots=True)
class Account:
    """What the driver learns of a part."""

    piece: Piece
    table: Table | None
    bad: tuple[BadRow, ...]
    cut_within_a_row: bool


class Reader(Protocol):
    """One format: how its files are cut, and how a piece becomes a frame."""

    @property
    def missing(self) -> Literal["error", "nulls"]:
        """What a column means that one file has and another lacks."""
        ...

    @property
    def mixed(self) -> Column:
        """What a column is if the parts of one file have nothing in common."""
        ...

    def cutting(self, file: File) -> Cutting | None: ...

    def read(self, piece: Piece) -> Part: ...

    def reread(self, part: Part, agreed: Mapping[Hashable, Column]) -> pd.DataFrame:
        """The part's frame, or one read anew where a column cannot be cast to what was agreed."""
        ...


def read_frames(files: Sequence[File], reader: Reader, num_shards: int, on_error: OnError) -> XShards:
    """Shards of pandas frames.

    All of it is read once and kept where it lies, because only the last row tells what type a column has.
    """
    whole: set[str] = set()

    def cutting(file: File) -> Cutting | None:
        return None if file.url in whole else reader.cutting(file)

    while True:
        shares = share(files, num_shards, cutting)
        parts = XShards.from_items(shares, _Load(reader)).cache()
        accounts = [account for shard in parts.transform_shard(_accounts).collect() for account in shard]
        wrong = {account.piece.file.url for account in accounts if account.cut_within_a_row}
        if not wrong:
            break
        parts.uncache()
        whole.update(wrong)
    report([row for account in accounts for row in account.bad], on_error)
    tables = [account.table for account in accounts if account.table is not None]
    if not tables:
        raise pd.errors.EmptyDataError(f"{files[0].name} is empty: it has not even a header")
    agreed = agree(tables, missing=reader.missing, mixed=reader.mixed)
    return parts.transform_shard(_Together(reader, agreed))


@dataclass(frozen=True, slots=True)
class _Load:
    reader: Reader

    def __call__(self, pieces: Sequence[Piece]) -> list[Part]:
        return [self.reader.read(piece) for piece in pieces]


def _accounts(parts: Sequence[Part]) -> list[Account]:
    return [part.account() for part in parts]


@dataclass(frozen=True, slots=True)
class _Together:
    """The parts of one shard as one frame of the agreed types."""

    reader: Reader
    agreed: Mapping[Hashable, Column]

    def __call__(self, parts: Sequence[Part]) -> pd.DataFrame:
        frames = [
            conform(self.reader.reread(part, self.agreed), self.agreed) for part in parts if part.frame is not None
        ]
        frames = [frame for frame in frames if len(frame)] or frames[:1]
        if not frames:
            return pd.DataFrame({name: pd.Series([], dtype=column.dtype) for name, column in self.agreed.items()})
        if len(frames) == 1:
            return frames[0].copy(deep=not _COPY_ON_WRITE)  # what is kept stays as it is, whatever becomes of this
        return pd.concat(frames, ignore_index=self._numbered(frames))

    @staticmethod
    def _numbered(frames: Sequence[pd.DataFrame]) -> bool:
        return all(isinstance(frame.index, pd.RangeIndex) for frame in frames)
