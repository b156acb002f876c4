"""From images to tensors and back, and the normalisation that follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from PIL import Image
from torch.utils.data import default_collate

from seamline.core import tree
from seamline.nano.torch.vision.pixels import Pixels
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.transforms.transform import Transform


class ToTensor(Transform):
    """A float tensor of channels, height, width between 0 and 1, from a PIL image or an array."""

    def __call__(self, pic: Any) -> torch.Tensor:
        return functional.to_tensor(pic)


class PILToTensor(Transform):
    """A tensor of channels, height, width with the same values, such as uint8; see ``NormalizeBatch``."""

    def __call__(self, pic: Any) -> torch.Tensor:
        return functional.pil_to_tensor(pic)


class ToPILImage(Transform):
    """A PIL image from a tensor or an array."""

    def __init__(self, mode: str | None = None) -> None:
        self.mode = mode

    def __call__(self, pic: Any) -> Image.Image:
        return functional.to_pil_image(pic, self.mode)


class Normalize(Transform):
    """Subtract the mean of each channel and divide by its standard deviation; right after ``ToTensor`` it is free."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return functional.normalize(tensor, self.mean, self.std, self.inplace)

    def of_pixels(self, pixels: Pixels) -> torch.Tensor:
        """``ToTensor`` and this in one pass."""
        return functional.pixels_to_tensor(pixels, self.mean, self.std)


class NormalizeBatch(Transform):
    """``ToTensor`` and ``Normalize`` for a whole batch of uint8 at once, after a pipeline that ends in ``PILToTensor``.

    Call it on a batch in the training step, so that a quarter of the bytes travels from the loading workers, or give
    its ``collate`` to a ``DataLoader`` as ``collate_fn``.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = mean
        self.std = std

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Floats from (images, channels, height, width)."""
        return functional.normalize_uint8(batch, self.mean, self.std)

    def collate(self, samples: list[Any]) -> Any:
        """The usual batch of these samples, in which the uint8 images are normalised."""
        return tree.map_leaves(self._leaf, default_collate(samples))

    def _leaf(self, leaf: Any) -> Any:
        is_image = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.uint8 and leaf.ndim == 4
        return self(leaf) if is_image else leaf
