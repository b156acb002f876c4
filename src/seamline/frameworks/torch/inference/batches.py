"""The user's data as flat batches, to calibrate and to judge with, and what their shapes say about the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from seamline.core.runtime import Flat
from seamline.frameworks.torch.inference.form import CallForm, in_batches, rows_of
from seamline.frameworks.torch.inference.portable import (
    TorchPortable,
    as_array,
    free_dimensions,
    varying_dimensions,
)
from seamline.frameworks.torch.inference.samples import Call, calls

CALIBRATION_ROWS = 128
CALIBRATION_BATCH = 8
VALIDATION_BATCH = 32


def calibration_batches(model: nn.Module, form: CallForm, call: Any, *sources: Any) -> list[Flat]:
    """Real inputs in small batches, as numpy arrays."""
    source = next((data for data in sources if data is not None), None)
    found: list[Flat] = []
    sample = form.flatten(call.args, call.kwargs)
    given = calls(model, source) if source is not None else iter([call])
    for each in given:
        tensors = form.flatten(each.args, each.kwargs)
        _check_sizes(model, each, tensors, sample)
        for batch in in_batches(tensors, CALIBRATION_BATCH):
            if sum(map(rows_of, found)) >= CALIBRATION_ROWS:
                return found
            found.append([as_array(tensor) for tensor in batch])
    return found


def _check_sizes(model: nn.Module, call: Call, tensors: list[torch.Tensor], sample: list[torch.Tensor]) -> None:
    """Rows and lengths may differ from the sample's, and any size behind them that the model takes."""
    for tensor, other in zip(tensors, sample, strict=True):
        refusal = f"calibration data has shape {tuple(tensor.shape)}, the sample {tuple(other.shape)}"
        if tensor.ndim != other.ndim:
            raise ValueError(refusal)
        differ = [
            d for d in range(tensor.ndim) if tensor.shape[d] != other.shape[d] and d not in free_dimensions(tensor)
        ]
        if any(d < 2 for d in differ):
            raise ValueError(refusal)
        if differ:
            try:
                with torch.no_grad():
                    model(*call.args, **call.kwargs)
            except Exception as error:
                raise ValueError(f"{refusal}, and the model does not take both") from error


def with_sizes_of(portable: TorchPortable, *batches: list[Flat]) -> TorchPortable:
    """The same, told which sizes are others in other calls."""
    others = [batch for found in batches for batch in found]
    return replace(portable, varying=varying_dimensions(portable.sample, others))


def validation_batches(model: nn.Module, form: CallForm, data: Any) -> list[tuple[Flat, Any]]:
    if data is None:
        return []
    found: list[tuple[Flat, Any]] = []
    for each in calls(model, data):
        tensors = form.flatten(each.args, each.kwargs)
        parts = list(in_batches(tensors, VALIDATION_BATCH))
        for number, part in enumerate(parts):
            cut = slice(number * VALIDATION_BATCH, (number + 1) * VALIDATION_BATCH)
            found.append((part, each.targets if len(parts) == 1 else _cut(each.targets, cut, rows_of(tensors))))
    return found


def _cut(targets: Any, cut: slice, rows: int) -> Any:
    # One tensor, several, or a list with one for each row.
    if isinstance(targets, (torch.Tensor, list, tuple)) and len(targets) == rows:
        return targets[cut]
    if isinstance(targets, dict):
        return {key: _cut(value, cut, rows) for key, value in targets.items()}
    if isinstance(targets, (list, tuple)):
        return [_cut(value, cut, rows) for value in targets]
    return targets
