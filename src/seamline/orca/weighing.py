"""What the user says of how much rows count, checked before anything starts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from seamline.core import tree
from seamline.core.framework import Recipe, Weighting
from seamline.core.shards import Weighed


def weighting(
    recipe: Recipe, class_weight: Mapping[Any, Any] | None, sample_weight: Any, weight_col: str | None
) -> Weighting | None:
    """What a run has to know; ``None`` where every row counts alike."""
    rows = sample_weight is not None or weight_col is not None
    if class_weight is None and not rows:
        return None
    if sample_weight is not None and weight_col is not None:
        raise ValueError("sample_weight= and weight_col= both say what rows weigh; give one of them")
    if recipe.loss is None:
        raise ValueError(
            "weights of rows multiply the loss= of each row, and this estimator has none; use them in your own step"
        )
    return Weighting(classes=None if class_weight is None else _classes(class_weight), rows=rows)


def weighed(data: Any, sample_weight: Any) -> Any:
    """Arrays with their weights beside the targets, where there are weights."""
    if sample_weight is None:
        return data
    if not isinstance(data, tuple) or len(data) != 2:
        raise TypeError(
            f"sample_weight= goes with arrays (x, y), and the data is a {type(data).__name__}; "
            "in a table, name a column of weights by weight_col="
        )
    weights = np.asarray(sample_weight)
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise ValueError(f"sample_weight needs a number for each row, but has shape {weights.shape} of {weights.dtype}")
    rows = len(next(tree.leaves(data[1])))
    if len(weights) != rows:
        raise ValueError(f"sample_weight has {len(weights)} entries for {rows} rows")
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise ValueError("sample_weight must be finite and not negative, and not all of it 0")
    return data[0], Weighed(data[1], weights.astype(np.float64))


def _classes(given: Mapping[Any, Any]) -> dict[Any, float]:
    if not isinstance(given, Mapping) or not given:
        raise TypeError(f"class_weight is a dict such as {{0: 1.0, 1: 5.0}}, but got {given!r}")
    for name, weight in given.items():
        if not isinstance(name, (numbers.Real, np.bool_)):
            raise TypeError(f"class_weight names classes as the targets have them, by numbers, but got {name!r}")
        if not isinstance(weight, numbers.Real) or not math.isfinite(weight) or weight < 0:
            raise ValueError(f"class_weight[{name!r}] must be a number of 0 or more, but is {weight!r}")
    return {_plain(name): float(weight) for name, weight in given.items()}


def _plain(name: Any) -> Any:
    return name.item() if isinstance(name, np.generic) else name
