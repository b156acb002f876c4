"""The forms in which images come: PIL images, arrays and tensors; inside, all are arrays of height, width, channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

Pixels: TypeAlias = npt.NDArray[Any]
"""Height x width x channels, always three axes; uint8, or floating point between 0 and 1."""

Work: TypeAlias = Callable[[Pixels], Pixels]

_MODE_OF_CHANNELS = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_SPLIT_BY_OPENCV = (np.uint8, np.float32)
_WITHOUT_VALUES = ("1", "P", "PA")


@dataclass(frozen=True, slots=True)
class Picture:
    """The pixels of an image, and how to give it back in the form in which it came."""

    pixels: Pixels
    mode: str | None = None
    axes: int = 3

    @classmethod
    def of(cls, image: Image.Image | npt.NDArray[Any]) -> Picture:
        if isinstance(image, Image.Image):
            if image.mode in _WITHOUT_VALUES:
                raise TypeError(f"an image of mode {image.mode!r} has no colours to work on; use image.convert('RGB')")
            return cls(three_axes(np.asarray(image)), image.mode)
        if image.ndim not in (2, 3):
            raise ValueError(f"an image has 2 or 3 axes (height, width, channels), but this array has {image.ndim}")
        return cls(three_axes(image), None, image.ndim)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.pixels.shape[0]), int(self.pixels.shape[1])

    def given(self, pixels: Pixels) -> Picture:
        return Picture(pixels, self.mode, self.axes)

    def image(self) -> Any:
        """A PIL image if it came as one, else an array."""
        if self.mode is not None:
            return to_pil(self.pixels, self.mode)
        return self.pixels[:, :, 0] if self.axes == 2 and self.pixels.shape[2] == 1 else self.pixels


def of_file(pixels: Pixels) -> Picture:
    """Pixels that were read from a file; to anybody outside they are a PIL image, as with torchvision."""
    return Picture(pixels, "RGB")


def is_picture(image: object) -> bool:
    return isinstance(image, (Image.Image, np.ndarray))


def three_axes(array: npt.NDArray[Any]) -> Pixels:
    """OpenCV and PIL drop the axis of a single channel; put it back."""
    return array[:, :, None] if array.ndim == 2 else array


def to_pil(pixels: Pixels, mode: str) -> Image.Image:
    """A PIL image of this mode, or of the usual one if the number of channels has changed."""
    height, width, channels = pixels.shape
    if channels != len(Image.Image.getbands(Image.new(mode, (1, 1)))):
        mode = _MODE_OF_CHANNELS[channels]
    return Image.frombytes(mode, (width, height), np.ascontiguousarray(pixels).tobytes())


def size_of(image: Any) -> tuple[int, int]:
    """Height and width of an image in any form."""
    if isinstance(image, Image.Image):
        return image.height, image.width
    if isinstance(image, np.ndarray):
        return int(image.shape[0]), int(image.shape[1])
    if isinstance(image, torch.Tensor) and image.ndim >= 2:
        return int(image.shape[-2]), int(image.shape[-1])
    raise TypeError(f"expected a PIL image, an array or a tensor of at least two axes, but got {type(image).__name__}")


def channels_of(image: Any) -> int:
    if isinstance(image, torch.Tensor):
        return int(image.shape[-3]) if image.ndim >= 3 else 1
    return int(Picture.of(image).pixels.shape[2])


def on_any(image: Any, work: Work) -> Any:
    """Do the work on the pixels of an image, or of each image of a batch of tensors; give back the form that came."""
    if isinstance(image, torch.Tensor):
        return _on_tensor(image, work)
    if not is_picture(image):
        raise TypeError(f"expected a PIL image, an array or a tensor, but got {type(image).__name__}")
    picture = Picture.of(image)
    return picture.given(work(picture.pixels)).image()


def _on_tensor(tensor: torch.Tensor, work: Work) -> torch.Tensor:
    images = tensor.detach().cpu().reshape(-1, *_shape_of_one(tensor))
    if images.is_floating_point():
        images = images.float()
    done = [channels_first(work(image.permute(1, 2, 0).numpy())) for image in images]
    stacked = torch.stack(done) if len(done) > 1 else done[0][None]
    shape = (*tensor.shape[:-3], *stacked.shape[1:]) if tensor.ndim > 2 else stacked.shape[2:]
    return stacked.reshape(shape).to(tensor.device, tensor.dtype)


def _shape_of_one(tensor: torch.Tensor) -> tuple[int, int, int]:
    if tensor.ndim < 2:
        raise ValueError(f"an image tensor is (..., channels, height, width), but got {tuple(tensor.shape)}")
    channels = tensor.shape[-3] if tensor.ndim > 2 else 1
    return channels, tensor.shape[-2], tensor.shape[-1]


def channels_first(pixels: Pixels) -> torch.Tensor:
    """The same values as a new tensor of channels, height, width."""
    height, width, channels = pixels.shape
    planes = np.empty((channels, height, width), pixels.dtype)
    if channels > 1 and pixels.dtype in _SPLIT_BY_OPENCV:
        cv2.split(np.ascontiguousarray(pixels), list(planes))  # ten times faster than a transposing copy
    else:
        planes[:] = pixels.transpose(2, 0, 1)
    return torch.from_numpy(planes)
