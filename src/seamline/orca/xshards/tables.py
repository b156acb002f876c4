"""What shards that are tables can be asked: the answers are those of pandas for the whole table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd

from seamline.core import registry
from seamline.core.collection import Collection
from seamline.core.errors import ColumnError
from seamline.orca.xshards import describing, duplicates, frames, grouping, merging, moves, pieces, storing
from seamline.orca.xshards.frames import Names, OnFrames
from seamline.orca.xshards.merging import How, Keys
from seamline.orca.xshards.planned import Planned, at_least_one
from seamline.orca.xshards.survey import Survey, surveyed

T = TypeVar("T", bound="TableShards")


class TableShards(Planned):
    """Operations by column name.

    Those that bring rows together send them through the engine's own shuffle and let pandas compute on what has come
    together. The pandas index belongs to a shard: what moves rows between shards numbers them anew.
    """

    @property
    def columns(self) -> list[Any]:
        """The names of the columns, as the first shard has them."""
        shard = self._collection.map(_columns).collect([0])[0]
        return list(shard)

    def __getitem__(self: T, columns: Names) -> T:
        """``shards["a"]`` gives shards that are Series, ``shards[["a", "b"]]`` frames with these columns."""
        return self._then(OnFrames(frames.select, (columns,)))

    def select(self: T, *columns: Names) -> T:
        """Frames with these columns alone."""
        names = [name for given in columns for name in frames.named(given)]
        return self._then(OnFrames(frames.select, (names,)))

    def partition_by(self: T, cols: Names, num_partitions: int | None = None) -> T:
        """All rows with the same values in ``cols`` in one shard, in the order that they have."""
        count = self._count if num_partitions is None else at_least_one("num_partitions", num_partitions)

        def moved(shards: Collection, survey: Survey) -> Collection:
            names = frames.need(survey.columns, cols)
            return shards.exchange(moves.ByHash(tuple(names), survey.kinds[names], count), count, moves.to_frames)

        return self._wide(moved, count)

    def sort_values(self: T, by: Names, ascending: bool | Sequence[bool] = True) -> T:
        """Rows in order over all shards; nulls last, and equal rows in the order that they had."""

        def moved(shards: Collection, survey: Survey) -> Collection:
            names = frames.need(survey.columns, by)
            ways = [ascending] * len(names) if isinstance(ascending, bool) else list(ascending)
            if len(ways) != len(names):
                raise ValueError(f"ascending has {len(ways)} values for {len(names)} columns; give one to each")
            bounds = moves.ranges([(survey, names)], survey.kinds[names], ways, self._count)
            move = moves.ByRange(tuple(names), tuple(ways), bounds, self._count)
            return shards.exchange(move, self._count, moves.to_frames).map(moves.Sorted(tuple(names), tuple(ways)))

        return self._wide(moved, sample=by)

    def group_by(self: T, columns: Names, agg: Any) -> T:
        """One row for each group, in the order of the keys: the keys, then the aggregates.

        ``agg`` is what pandas takes: a function or its name, or a list of them, for all other columns; or a dict by
        column. Several functions of one column are named like ``fare_min``. ``{"name": ("column", function)}`` says
        the name. Rows with a null key belong to no group, and only categories that occur are groups.
        """
        return self._wide(
            lambda shards, survey: grouping.grouped(shards, survey, columns, agg, self._count), sample=columns
        )

    def merge(
        self: T,
        right: TableShards,
        how: How = "inner",
        on: Names | None = None,
        *,
        left_on: Names | None = None,
        right_on: Names | None = None,
        suffixes: tuple[str, str] = ("_x", "_y"),
    ) -> T:
        """A join, in the order that pandas gives: that of the left rows, of the right ones, or of the keys if outer.

        ``on`` defaults to the columns that both have. A null matches a null, and null keys come last in an outer join.
        """
        keys = Keys(how, on, left_on, right_on, suffixes)
        count = merging.count(keys, self._count, right._count)
        return self._new(count, lambda: merging.merged(self._collection, right._collection, keys))

    def deduplicates(self: T, columns: Names | None = None) -> T:
        """The first of all rows that are the same (in ``columns``, if given), each in its place."""
        return self._wide(lambda shards, survey: duplicates.dropped(shards, survey, columns))

    def drop_missing_value(self: T, columns: Names | None = None) -> T:
        """Without the rows that have a null (in ``columns``, if given)."""
        return self._then(OnFrames(frames.drop_missing, (columns,)))

    def assembleFeatureLabelCols(self: T, featureCols: Names, labelCols: Names | None = None) -> T:  # noqa: N802, N803
        """Shards ``{"x": array, "y": array}`` of columns side by side; lists in a column become a dimension."""
        return self._then(OnFrames(frames.assemble, (featureCols, labelCols)))

    def unique(self) -> Any:
        """The different values of shards that are Series (``shards["a"].unique()``), in the order of appearance."""
        return describing.unique(self._collection)

    def describe(self, *columns: str) -> pd.DataFrame:
        """What pandas' ``describe`` says of the whole table; quartiles are exact."""
        return describing.described(*surveyed(self._collection), list(columns))

    def max_values(self, columns: Names | None = None) -> Any:
        """The largest value of a column; a Series of them for several, or for all that can be compared."""
        return describing.extreme(self._collection, "max", columns)

    def min_values(self, columns: Names | None = None) -> Any:
        """The smallest value of a column; a Series of them for several, or for all that can be compared."""
        return describing.extreme(self._collection, "min", columns)

    def get_null_sum(self) -> pd.DataFrame:
        """How many nulls each column has: a frame with the columns ``col`` and ``total``."""
        return describing.nulls(self._collection)

    def to_pandas(self) -> Any:
        """All rows in one frame (or Series, or whatever the shards are), here."""
        return pieces.join(self._collection.collect())

    def concat_to_pdf(self: T) -> T:
        """All rows as one frame in one shard."""
        return self._new(1, lambda: moves.repartitioned(self._collection, 1))

    def to_spark_df(self) -> Any:
        """A Spark DataFrame with the same rows, on the active Spark session."""
        return self._exported("spark")

    def to_ray(self) -> Any:
        """A Ray Dataset with the same rows."""
        return self._exported("ray")

    def _exported(self, engine: str) -> Any:
        library: Any = registry.engine(engine)
        tables, schema = storing.tables(self._collection)
        return library.native(tables, schema)

    def _wide(
        self: T, moved: Callable[[Collection, Survey], Collection], count: int | None = None, sample: Names = ()
    ) -> T:
        """New shards by an operation on pandas frames of agreed types, in the library that the shards were of."""

        def plan() -> Collection:
            shards, survey = surveyed(self._collection, sample)
            result = moved(shards, survey)
            return result if survey.maker.library is None else result.map(Back(survey.maker))

        return self._new(self._count if count is None else count, plan)


def _columns(_index: int, shard: Any) -> list[Any]:
    if isinstance(shard, Mapping):
        return list(shard)
    if not hasattr(shard, "columns"):
        raise ColumnError(f"a shard of type {type(shard).__name__} has no columns")
    return list(frames.as_frame(shard).columns)


class Back:
    """Makes frames what they were before an operation of pandas."""

    def __init__(self, maker: frames.Maker) -> None:
        self._maker = maker

    def __call__(self, _index: int, frame: pd.DataFrame) -> Any:
        return self._maker(frame)
