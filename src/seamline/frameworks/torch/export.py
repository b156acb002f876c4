"""A trained model as a file for other programs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seamline.frameworks.torch.inference.portable import TorchPortable, evaluating
from seamline.frameworks.torch.inference.samples import sample_call
from seamline.frameworks.torch.tensors import Placement


def to_onnx(model: nn.Module, sample: Any, path: Path) -> None:
    """Write the model as ONNX for any number of rows; ``ExportError`` says why it cannot be."""
    if sample is None:
        sample = getattr(model, "example_input_array", None)
    if sample is None:
        raise ValueError("nothing to call the model with; give input_sample=, such as a batch of inputs, or fit first")
    placed = Placement.of(model, torch.device("cpu"), channels_last=False).put(sample)
    with evaluating(model), tempfile.TemporaryDirectory(prefix="seamline-onnx-") as folder:
        portable = TorchPortable.of(model, sample_call(model, placed), Path(folder))
        portable.export()
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(portable.onnx(), path)
