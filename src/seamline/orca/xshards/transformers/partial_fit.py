"""Transformers of scikit-learn, and whatever else has ``partial_fit`` and ``transform``."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd

from seamline.core.errors import SeamlineError
from seamline.orca.xshards import frames, pieces
from seamline.orca.xshards.shards import XShards


class PartialFit:
    """Fits a transformer shard by shard, as if it were given one batch after the other.

    The transformer travels to each shard in turn, so the result is exactly that of ``partial_fit`` on the shards in
    their order; it takes as long as one process takes. ``columns`` of frames are given to it and replaced by
    what it makes of them; without ``columns`` shards are arrays, or frames that are given as they are.
    """

    def __init__(self, transformer: Any, columns: frames.Names | None = None) -> None:
        self.transformer = transformer
        self.columns = columns

    def fit(self, shards: XShards) -> PartialFit:
        """Learn from all rows, and return ``self``; ``transformer_`` has learned, ``transformer`` stays as it is."""
        if not hasattr(self.transformer, "partial_fit"):
            raise TypeError(f"{type(self.transformer).__name__} has no partial_fit; it can only learn from all rows")
        self.transformer_ = shards.fold(self._step, copy.deepcopy(self.transformer))
        return self

    def transform(self, shards: XShards) -> XShards:
        if not hasattr(self, "transformer_"):
            raise SeamlineError("this PartialFit has learned nothing yet; call fit first")
        return shards.transform_shard(self._transformed)

    def fit_transform(self, shards: XShards) -> XShards:
        return self.fit(shards).transform(shards)

    def _step(self, transformer: Any, shard: Any) -> Any:
        return transformer.partial_fit(self._given(shard)) if pieces.count(shard) else transformer

    def _given(self, shard: Any) -> Any:
        if self.columns is None:
            return shard
        frame = frames.as_frame(shard)
        return frame[frames.need(frame.columns, self.columns)]

    def _transformed(self, shard: Any) -> Any:
        given = self._given(shard)
        made = self.transformer_.transform(given) if len(given) else np.zeros((0, self._width(given)))
        if isinstance(shard, np.ndarray):
            return made
        made = made.to_numpy() if hasattr(made, "to_numpy") else np.asarray(made)
        frame = frames.as_frame(shard)
        result = pd.DataFrame(made, frame.index, self._outputs(given, made.shape[1]))
        if self.columns is not None:
            result = pd.concat([frame.drop(columns=list(given.columns)), result], axis=1)
        return frames.Maker.like(shard)(result)

    def _width(self, given: Any) -> int:
        return int(self.transformer_.transform(np.zeros((1, given.shape[1]))).shape[1])

    def _outputs(self, given: Any, width: int) -> list[str]:
        """The transformer's own names for what it makes, else those of what it was given, else numbers."""
        names = getattr(self.transformer_, "get_feature_names_out", None)
        if names is not None:
            return [str(name) for name in names(list(given.columns))]
        return list(given.columns) if width == len(given.columns) else [str(number) for number in range(width)]
