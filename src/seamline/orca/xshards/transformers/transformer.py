"""What every transformer is: something that learns from all shards and then changes each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import pandas as pd

from seamline.core.errors import SeamlineError
from seamline.orca.xshards import frames
from seamline.orca.xshards.shards import XShards

T = TypeVar("T", bound="Transformer")


class Transformer(ABC):
    """Works on ``columns`` of frames; results take their place, or stand beside them under the names ``outputs``."""

    def __init__(self, columns: frames.Names, outputs: frames.Names | None = None) -> None:
        self.columns = columns
        self.outputs = outputs

    def fit(self: T, shards: XShards) -> T:
        """Learn from all rows, and return ``self``; what was learned ends in an underscore."""
        self._names()
        self._learn(shards.transform_shard(self._looked_at).collect())
        return self

    def transform(self, shards: XShards) -> XShards:
        """The shards with their columns transformed, where they lie."""
        self._check_fitted()
        return shards.transform_shard(self._transformed)

    def fit_transform(self, shards: XShards) -> XShards:
        return self.fit(shards).transform(shards)

    @abstractmethod
    def _look(self, frame: pd.DataFrame) -> Any:
        """What one shard says."""

    @abstractmethod
    def _learn(self, said: Sequence[Any]) -> None:
        """Put together what all shards have said, in their order."""

    @abstractmethod
    def _column(self, column: Any, name: str) -> Any:
        """A column, transformed; under its own name it is known here."""

    def _looked_at(self, shard: Any) -> Any:
        return self._look(frames.as_frame(shard)[self._there(shard)])

    def _transformed(self, shard: Any) -> Any:
        frame = frames.as_frame(shard)
        pairs = zip(self._there(shard), self._names(), strict=True)
        changed = frame.assign(**{output: self._column(frame[name], name) for name, output in pairs})
        return frames.Maker.like(shard)(changed)

    def _there(self, shard: Any) -> list[str]:
        return frames.need(frames.as_frame(shard).columns, self.columns)

    def _names(self) -> list[str]:
        columns = frames.named(self.columns)
        outputs = columns if self.outputs is None else frames.named(self.outputs)
        if len(outputs) != len(columns):
            raise ValueError(f"outputs has {len(outputs)} names for {len(columns)} columns; give one to each")
        return outputs

    def _check_fitted(self) -> None:
        if not any(name.endswith("_") and not name.startswith("_") for name in vars(self)):
            raise SeamlineError(f"this {type(self).__name__} has learned nothing yet; call fit first")
