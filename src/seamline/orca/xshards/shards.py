"""A Python object in shards: made, transformed and collected."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seamline.core import registry, rows
from seamline.core.collection import Library
from seamline.core.errors import RowsError
from seamline.orca.xshards import moves, pieces, sampling, storing
from seamline.orca.xshards.home import Home
from seamline.orca.xshards.planned import at_least_one
from seamline.orca.xshards.tables import TableShards


class XShards(TableShards):
    """A Python object that lies in shards on the engine of the active context, or in this process without one.

    Shards are pandas or Polars frames, arrays, nested dicts, lists and tuples of arrays, or any objects. What is asked
    of them is only noted; functions run, one after the other in one go, when a result is wanted: by ``collect``,
    ``len`` or any method that does not give back an ``XShards``. Without ``cache`` each result is computed anew.
    """

    @classmethod
    def partition(cls, data: Any, num_shards: int | None = None) -> XShards:
        """Rows of ``data`` in shards whose sizes differ by one at most, by default one for each slot of the context."""
        home = Home.here()
        count = home.slots if num_shards is None else at_least_one("num_shards", num_shards)
        total = pieces.count(data)
        ends = moves.even_ends(total, count)
        parts = [pieces.cut(data, start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
        return cls(home, count, lambda: home.collection(parts))

    @classmethod
    def from_items(cls, items: Iterable[Any], load: Callable[..., Any], *args: Any, **keywords: Any) -> XShards:
        """One shard for each item: ``load(item, *args, **keywords)``, called where the shard lies."""
        home, known = Home.here(), list(items)
        if not known:
            raise ValueError("there are no items to make shards of; give at least one")
        return cls(home, len(known), lambda: home.collection(known).map(_Call(load, args, keywords)))

    @classmethod
    def from_files(cls, paths: str | os.PathLike[str] | Sequence[str], load: Callable[[str], Any]) -> XShards:
        """One shard for each file, by name: ``load(path)``. ``paths`` are files, a folder or a pattern."""
        return cls.from_items(_files(paths), load)

    @classmethod
    def from_spark(cls, df: Any) -> XShards:
        """The partitions of a Spark DataFrame as pandas frames, where they are."""
        return cls._adopted(registry.engine("spark", session=df.sparkSession), df)

    @classmethod
    def from_ray(cls, ds: Any) -> XShards:
        """The blocks of a Ray Dataset as pandas frames, where they are."""
        return cls._adopted(registry.engine("ray"), ds)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> XShards:
        """What ``save`` has written, shard by shard; ``path`` may be a URL of any kind that fsspec knows."""
        saved = storing.opened(path, storage_options)
        return cls.from_items(saved.parts, storing.read, saved)

    @classmethod
    def _adopted(cls, engine: Any, table: Any) -> XShards:
        library: Library = engine
        tables = library.adopt(table)
        return cls(Home.of(engine), tables.count, lambda: tables.map(storing.as_pandas))

    def transform_shard(self, func: Callable[..., Any], *args: Any, **keywords: Any) -> XShards:
        """``func(shard, *args, **keywords)`` of every shard; it may change what it is given."""
        kind = _ZippedCall if self._zipped else _Call
        return self._then(kind(func, args, keywords), zipped=self._zipped)

    def collect(self) -> list[Any]:
        """All shards, here."""
        return self._collection.collect()

    def first(self) -> Any:
        """The first shard."""
        return self._collection.collect([0])[0]

    def take(self, n: int) -> list[Any]:
        """The first ``n`` shards, or all if there are fewer."""
        return self._collection.collect(range(min(at_least_one("n", n), self.num_partitions())))

    def head(self, n: int = 5) -> Any:
        """The first ``n`` rows; reads no more shards than it needs."""
        found: list[Any] = []
        for number in range(self.num_partitions()):
            shard = self._collection.collect([number])[0]
            found.append(pieces.cut(shard, 0, n - sum(map(pieces.count, found))))
            if sum(map(pieces.count, found)) >= n:
                break
        return pieces.join(found)

    def fold(self, func: Callable[..., Any], state: Any) -> Any:
        """``state = func(state, shard)`` for one shard after the other; the state travels, the shards stay."""
        kept = self._collection.keep()
        for number in range(self._count):
            state = kept.map(_Folded(func, state)).collect([number])[0]
        return state

    def __repr__(self) -> str:
        return f"<XShards: {self._count} shards on {self._home.engine.name}>"

    def __len__(self) -> int:
        """Rows in all shards; an object without rows counts as one."""
        return sum(self._collection.map(_size).collect())

    def num_partitions(self) -> int:
        return self._count

    def repartition(self, num_shards: int) -> XShards:
        """The same rows in the same order, in shards whose sizes differ by one at most."""
        count = at_least_one("num_shards", num_shards)
        return self._new(count, lambda: moves.repartitioned(self._collection, count))

    def zip(self, other: XShards) -> XShards:
        """Pairs of shards; each has as many rows as the one that it is paired with, and transforms keep it so."""
        if not isinstance(other, XShards):
            raise TypeError(f"zip takes XShards, but got {type(other).__name__}; make them by XShards.partition")
        if other.num_partitions() != self.num_partitions():
            raise ValueError(
                f"{self.num_partitions()} and {other.num_partitions()} shards cannot be zipped; repartition one of them"
            )
        pairs = self._new(self._count, lambda: self._collection.zip(other._collection).map(_same_rows))
        pairs._zipped = True
        return pairs

    def split(self, fractions: Sequence[float] | None = None, *, seed: int = 0) -> list[XShards]:
        """Several ``XShards``: one for each part of shards that are tuples or lists, or by chance, row by row.

        With ``fractions`` (``[0.8, 0.2]``) each row goes to one part, by ``seed`` and the number of the row alone:
        the same rows on every engine and for any number of shards.
        """
        if fractions is None:
            width = self._collection.map(_width).collect()
            if len(set(width)) != 1:
                raise ValueError(f"shards with {min(width)} to {max(width)} parts cannot be split; give all as many")
            return [self._then(_Part(number)) for number in range(width[0])]
        sampling.check(fractions)
        return [
            self._new(self._count, lambda n=number: sampling.part(self._collection, fractions, n, seed))  # type: ignore[misc]
            for number in range(len(fractions))
        ]

    def sample(self, frac: float, replace: bool = False, seed: int = 0) -> XShards:
        """``frac`` of all rows by chance, in their order; the same on every engine for the same shards."""
        return self._new(self._count, lambda: sampling.sampled(self._collection, frac, replace, seed))

    def cache(self) -> XShards:
        """Keep the shards where they are once they are computed, and return ``self``."""
        self._keeping = True
        return self

    def uncache(self) -> XShards:
        """Give up what was kept, and return ``self``; who asks again has it computed again."""
        self._keeping = False
        if self._kept is not None:
            self._kept.release()
            self._kept = None
        return self

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        format: str = "parquet",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one file for each shard into a folder, as ``"parquet"`` or ``"arrow"``; ``XShards.load`` reads it.

        Frames, arrays and nests of arrays can be saved. ``path`` may be a URL, which every worker has to reach. What
        was saved there before is replaced at once, when all is written.
        """
        storing.save(self._collection, path, format, storage_options)


@dataclass(frozen=True, slots=True)
class _Call:
    """A function of a shard, with more arguments."""

    func: Callable[..., Any]
    args: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)

    def __call__(self, _index: int, shard: Any) -> Any:
        return self.func(shard, *self.args, **self.keywords)


@dataclass(frozen=True, slots=True)
class _ZippedCall(_Call):
    """The same for pairs, which stay pairs of as many rows."""

    def __call__(self, index: int, shard: Any) -> Any:
        result = self.func(shard, *self.args, **self.keywords)
        return _same_rows(index, result) if isinstance(result, tuple) else result


@dataclass(frozen=True, slots=True)
class _Folded:
    func: Callable[..., Any]
    state: Any

    def __call__(self, _index: int, shard: Any) -> Any:
        return self.func(self.state, shard)


@dataclass(frozen=True, slots=True)
class _Part:
    number: int

    def __call__(self, _index: int, shard: Any) -> Any:
        return shard[self.number]


def _same_rows(index: int, pair: Any) -> Any:
    counts = [rows.count(part) for part in pair]
    if len(set(counts)) > 1:
        told = " and ".join(str(number) for number in counts)
        raise RowsError(
            f"the zipped parts of shard {index} have {told} rows; a transform has added rows to one of them or dropped "
            "some: do that before zip, or to both alike"
        )
    return pair


def _width(index: int, shard: Any) -> int:
    if not isinstance(shard, (list, tuple)):
        raise RowsError(
            f"split divides shards that are tuples or lists, but shard {index} is a {type(shard).__name__}; "
            "for a split by chance give fractions, as in split([0.8, 0.2])"
        )
    return len(shard)


def _size(_index: int, shard: Any) -> int:
    number = rows.count(shard)
    return 1 if number is None else number


def _files(paths: str | os.PathLike[str] | Sequence[str]) -> list[str]:
    if not isinstance(paths, (str, os.PathLike)):
        return [found for each in paths for found in _files(each)]
    path = Path(paths)
    if path.is_dir():
        found = sorted(str(each) for each in path.iterdir() if each.is_file() and not each.name.startswith((".", "_")))
    else:
        found = [str(path)] if path.exists() else sorted(glob.glob(str(paths), recursive=True))  # noqa: PTH207
    if not found:
        raise FileNotFoundError(f"no file at {str(paths)!r}; give a path, a folder with files, or a pattern")
    return found
