"""Rows that occur more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from seamline.core.collection import Collection
from seamline.orca.xshards import frames, moves
from seamline.orca.xshards.survey import Survey


def dropped(shards: Collection, survey: Survey, columns: frames.Names | None) -> Collection:
    """Rows that may be the same meet by hash; the first of each goes back to its place."""
    names = tuple(survey.columns if columns is None else frames.need(survey.columns, columns))
    once = _Once(names)
    move = moves.ByHash(names, survey.kinds[list(names)], shards.count)
    met = shards.map(moves.placed).map(once).exchange(move, shards.count, moves.to_frames).map(once)
    return met.exchange(moves.Home(shards.count), shards.count, moves.at_home)


@dataclass(frozen=True, slots=True)
class _Once:
    names: tuple[Any, ...]

    def __call__(self, _index: int, frame: pd.DataFrame) -> pd.DataFrame:
        return frame.drop_duplicates(subset=list(self.names))
