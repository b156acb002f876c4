"""Changing the size of a picture as Pillow does, with the vector instructions that torch has for it.

Antialiased linear and cubic resizing of uint8 follow Pillow's own arithmetic, to within two levels of 255.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

import cv2
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from seamline.nano.torch.vision.pixels import Pixels, three_axes, to_pil
from seamline.nano.torch.vision.window import Axis, span


class InterpolationMode(Enum):
    """How values between pixels are found; the names and values are torchvision's."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


_OF_PILLOW = {
    0: InterpolationMode.NEAREST,
    1: InterpolationMode.LANCZOS,
    2: InterpolationMode.BILINEAR,
    3: InterpolationMode.BICUBIC,
    4: InterpolationMode.BOX,
    5: InterpolationMode.HAMMING,
}
_IN_OPENCV = {
    InterpolationMode.NEAREST: cv2.INTER_NEAREST,
    InterpolationMode.NEAREST_EXACT: cv2.INTER_NEAREST,
    InterpolationMode.BILINEAR: cv2.INTER_LINEAR,
    InterpolationMode.BICUBIC: cv2.INTER_CUBIC,
}
_ANTIALIASED = {
    InterpolationMode.BILINEAR: torch.ops.aten._upsample_bilinear2d_aa,
    InterpolationMode.BICUBIC: torch.ops.aten._upsample_bicubic2d_aa,
}
_RADIUS = {InterpolationMode.BILINEAR: 1, InterpolationMode.BICUBIC: 2}

Part: TypeAlias = tuple[int, int, int, int]
"""Top, left, height and width of a part of a picture, all of it inside."""


def interpolation_mode(given: Any) -> InterpolationMode:
    """Ours from ours, torchvision's, Pillow's number, or the name."""
    if isinstance(given, InterpolationMode):
        return given
    value = getattr(given, "value", given)
    if isinstance(value, int) and value in _OF_PILLOW:
        return _OF_PILLOW[value]
    try:
        return InterpolationMode(value)
    except ValueError as error:
        names = ", ".join(mode.name for mode in InterpolationMode)
        raise ValueError(f"no interpolation {given!r}; there are {names}") from error


def opencv_flag(interpolation: InterpolationMode) -> int:
    """For turning and warping, where OpenCV does the work."""
    if interpolation not in _IN_OPENCV:
        raise ValueError(f"{interpolation.name} is for resizing only; use NEAREST, BILINEAR or BICUBIC")
    return _IN_OPENCV[interpolation]


def smooths(interpolation: InterpolationMode, antialias: bool | None) -> bool:
    """Whether all pixels count for a smaller picture, so that it may be made of one that was decoded smaller."""
    return bool(antialias) and interpolation in _ANTIALIASED


def resize(
    pixels: Pixels,
    size: tuple[int, int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    *,
    antialias: bool = True,
    extent: tuple[float, float] | None = None,
    part: Part | None = None,
) -> Pixels:
    """A picture of this height and width, or a part of it.

    ``extent`` is how many rows and columns of ``pixels`` the picture really has, if its last ones are there in part.
    """
    same = pixels.shape[:2] == size and extent is None
    if smooths(interpolation, antialias) and not same:
        return _antialiased(pixels, size, interpolation, extent or pixels.shape[:2], part or (0, 0, *size))
    whole = pixels if same else _whole(pixels, size, interpolation)
    if part is None:
        return whole
    top, left, height, width = part
    return whole[top : top + height, left : left + width]


def _whole(pixels: Pixels, size: tuple[int, int], interpolation: InterpolationMode) -> Pixels:
    if interpolation in (InterpolationMode.NEAREST, InterpolationMode.NEAREST_EXACT):
        return _nearest(pixels, size)
    if interpolation not in _ANTIALIASED:
        return _by_pillow(pixels, size, interpolation)
    return three_axes(cv2.resize(pixels, size[::-1], interpolation=_IN_OPENCV[interpolation]))


def _antialiased(
    pixels: Pixels, size: tuple[int, int], interpolation: InterpolationMode, extent: tuple[float, ...], part: Part
) -> Pixels:
    top, left, height, width = part
    radius = _RADIUS[interpolation]
    rows = span(Axis(pixels.shape[0], size[0], extent[0], radius), top, height)
    columns = span(Axis(pixels.shape[1], size[1], extent[1], radius), left, width)
    # Channels last in memory is the layout that torch's uint8 kernels are written for, and what pixels have anyway;
    # the axis of the batch has to come from torch, as with numpy's (whose stride is 0) they do not recognise it.
    # Arrays of PIL images cannot be written to, which torch warns of.
    needed = pixels[rows.start : rows.stop, columns.start : columns.stop]
    batch = torch.from_numpy(np.require(needed, requirements=["C", "W"]))[None].permute(0, 3, 1, 2)
    done = _ANTIALIASED[interpolation](batch, [rows.count, columns.count], False, 1 / rows.step, 1 / columns.step)
    resized: Pixels = done.numpy()[0].transpose(1, 2, 0)
    return resized[rows.early : rows.early + height, columns.early : columns.early + width]


def _nearest(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    rows = _nearest_places(pixels.shape[0], size[0])
    columns = _nearest_places(pixels.shape[1], size[1])
    return pixels[rows[:, None], columns]


def _nearest_places(old: int, new: int) -> npt.NDArray[np.int64]:
    return ((np.arange(new) + 0.5) * old / new).astype(np.int64)


def _by_pillow(pixels: Pixels, size: tuple[int, int], interpolation: InterpolationMode) -> Pixels:
    if pixels.dtype != np.uint8:
        raise TypeError(f"{interpolation.name} is for uint8 images; use BILINEAR or BICUBIC for {pixels.dtype}")
    number = next(number for number, mode in _OF_PILLOW.items() if mode is interpolation)
    image = to_pil(pixels, "RGB").resize(size[::-1], Image.Resampling(number))
    return three_axes(np.asarray(image))
