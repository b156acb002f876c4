"""Cutting, padding, mirroring, turning and warping pixels; coordinates and signs are Pillow's and torchvision's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from seamline.nano.torch.vision.pixels import Pixels, three_axes
from seamline.nano.torch.vision.resampling import InterpolationMode, Part, interpolation_mode, opencv_flag, resize

_BORDERS = {
    "constant": cv2.BORDER_CONSTANT,
    "edge": cv2.BORDER_REPLICATE,
    "reflect": cv2.BORDER_REFLECT_101,
    "symmetric": cv2.BORDER_REFLECT,
}

Fill = float | Sequence[float] | None
Matrix = npt.NDArray[np.float64]


def hflip(pixels: Pixels) -> Pixels:
    return three_axes(cv2.flip(pixels, 1))


def vflip(pixels: Pixels) -> Pixels:
    return three_axes(cv2.flip(pixels, 0))


def crop(pixels: Pixels, top: int, left: int, height: int, width: int) -> Pixels:
    """A part of the picture; what lies outside of it is black."""
    rows, columns = pixels.shape[:2]
    bottom, right = top + height, left + width
    if top < 0 or left < 0 or bottom > rows or right > columns:
        outside = [max(-left, 0), max(-top, 0), max(right - columns, 0), max(bottom - rows, 0)]
        pixels = pad(pixels, outside)
        top, left = max(top, 0), max(left, 0)
    return pixels[top : top + height, left : left + width]


@dataclass(frozen=True, slots=True)
class Cut:
    """Work that keeps a part of a picture, so that of one that is still to be made only this part has to be."""

    part: Part

    def __call__(self, pixels: Pixels) -> Pixels:
        return crop(pixels, *self.part)


def center_crop(pixels: Pixels, output_size: int | Sequence[int]) -> Pixels:
    """The middle; a picture that is too small is padded with black first."""
    size = two_sides(output_size)
    rows, columns = pixels.shape[:2]
    if rows < size[0] or columns < size[1]:
        missing_y, missing_x = max(size[0] - rows, 0), max(size[1] - columns, 0)
        pixels = pad(pixels, [missing_x // 2, missing_y // 2, (missing_x + 1) // 2, (missing_y + 1) // 2])
        rows, columns = pixels.shape[:2]
    return middle_of(rows, columns, size)(pixels)


def middle_of(height: int, width: int, size: tuple[int, int]) -> Cut:
    """The middle of a picture that is at least this large."""
    return Cut((round((height - size[0]) / 2.0), round((width - size[1]) / 2.0), *size))


def pad(pixels: Pixels, padding: int | Sequence[int], fill: Fill = 0, padding_mode: str = "constant") -> Pixels:
    """A frame of one width, of (left and right, top and bottom), or of (left, top, right, bottom)."""
    if padding_mode not in _BORDERS:
        raise ValueError(f"no padding_mode {padding_mode!r}; there are {', '.join(_BORDERS)}")
    left, top, right, bottom = four_sides(padding)
    if min(left, top, right, bottom) < 0:
        kept_rows = slice(max(-top, 0), pixels.shape[0] - max(-bottom, 0))
        pixels = pixels[kept_rows, max(-left, 0) : pixels.shape[1] - max(-right, 0)]
        left, top, right, bottom = (max(side, 0) for side in (left, top, right, bottom))
    border = _BORDERS[padding_mode]
    pixels = np.ascontiguousarray(pixels)
    return three_axes(cv2.copyMakeBorder(pixels, top, bottom, left, right, border, value=_fill(fill, pixels)))


def resized_size(height: int, width: int, size: int | Sequence[int], max_size: int | None = None) -> tuple[int, int]:
    """The size after ``Resize``: a pair is taken as it is, a number is for the shorter side."""
    if not isinstance(size, int) and len(size) == 2:
        if max_size is not None:
            raise ValueError(f"max_size={max_size} needs one number for size, but got {tuple(size)}")
        return int(size[0]), int(size[1])
    wanted = size if isinstance(size, int) else int(size[0])
    short, long = min(height, width), max(height, width)
    new_short, new_long = wanted, int(wanted * long / short)
    if max_size is not None:
        if max_size <= wanted:
            raise ValueError(f"max_size={max_size} must be greater than size={wanted}")
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def resize_to(
    pixels: Pixels,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool | None = True,
) -> Pixels:
    """Resize to a pair, or the shorter side to a number with the longer one in proportion."""
    new = resized_size(pixels.shape[0], pixels.shape[1], size, max_size)
    return resize(pixels, new, interpolation_mode(interpolation), antialias=bool(antialias))


def resized_crop(
    pixels: Pixels,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    antialias: bool | None = True,
) -> Pixels:
    return resize_to(crop(pixels, top, left, height, width), size, interpolation, None, antialias)


def rotate(
    pixels: Pixels,
    angle: float,
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill = None,
) -> Pixels:
    """Turn counter-clockwise by degrees; ``expand`` makes room for the corners."""
    height, width = pixels.shape[:2]
    angle %= 360
    quarters, rest = divmod(angle, 90)
    if rest == 0 and center is None and (quarters % 2 == 0 or expand or height == width):
        return np.ascontiguousarray(np.rot90(pixels, int(quarters)))
    middle = (width / 2, height / 2) if center is None else (center[0], center[1])
    source = _moved(*middle) @ _turned(math.radians(angle)) @ _moved(-middle[0], -middle[1])
    if expand:
        corners = np.linalg.inv(source) @ np.array([[0, width, width, 0], [0, 0, height, height], [1, 1, 1, 1]])
        low, high = np.floor(corners[:2].min(1) + 1e-9), np.ceil(corners[:2].max(1) - 1e-9)
        new_width, new_height = (int(side) for side in high - low)
        source = source @ _moved((width - new_width) / 2, (height - new_height) / 2)
        width, height = new_width, new_height
    return _warp(pixels, source, (height, width), interpolation, fill)


def affine(
    pixels: Pixels,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: float | Sequence[float],
    interpolation: InterpolationMode = InterpolationMode.NEAREST,
    fill: Fill = None,
    center: Sequence[float] | None = None,
) -> Pixels:
    """Turn clockwise by degrees, shear by degrees, scale, all around the centre, then move."""
    if scale <= 0:
        raise ValueError(f"scale must be positive, but got {scale}")
    height, width = pixels.shape[:2]
    middle = (width / 2, height / 2) if center is None else (center[0], center[1])
    shears = (shear, 0.0) if isinstance(shear, (int, float)) else (shear[0], shear[1] if len(shear) > 1 else 0.0)
    shape = _turned(math.radians(angle)) @ _sheared(*(math.radians(value) for value in shears))
    shape[:2, :2] *= scale
    forward: Matrix = (
        _moved(middle[0] + translate[0], middle[1] + translate[1]) @ shape @ _moved(-middle[0], -middle[1])
    )
    source: Matrix = np.linalg.inv(forward).astype(np.float64)
    return _warp(pixels, source, (height, width), interpolation, fill)


def perspective(
    pixels: Pixels,
    startpoints: Sequence[Sequence[int]],
    endpoints: Sequence[Sequence[int]],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
    fill: Fill = None,
) -> Pixels:
    """Draw the four start points to the four end points."""
    ends, starts = np.array(endpoints, np.float32), np.array(startpoints, np.float32)
    source: Matrix = np.array(cv2.getPerspectiveTransform(ends, starts), np.float64)
    return _warp(pixels, source, (pixels.shape[0], pixels.shape[1]), interpolation, fill)


def _warp(
    pixels: Pixels, source: Matrix, size: tuple[int, int], interpolation: InterpolationMode, fill: Fill
) -> Pixels:
    """For each new pixel the old one at ``source``; points are measured from the picture's corner, as in Pillow."""
    flags = opencv_flag(interpolation_mode(interpolation)) | cv2.WARP_INVERSE_MAP
    centred = _moved(-0.5, -0.5) @ source @ _moved(0.5, 0.5)
    pixels = np.ascontiguousarray(pixels)
    border: Any = {"borderMode": cv2.BORDER_CONSTANT, "borderValue": _fill(fill, pixels)}
    if np.array_equal(source[2], (0, 0, 1)):
        return three_axes(cv2.warpAffine(pixels, centred[:2], size[::-1], flags=flags, **border))
    return three_axes(cv2.warpPerspective(pixels, centred, size[::-1], flags=flags, **border))


def _moved(x: float, y: float) -> Matrix:
    return np.array([[1, 0, x], [0, 1, y], [0, 0, 1]], np.float64)


def _turned(radians: float) -> Matrix:
    """Clockwise as seen, since y points down."""
    cos, sin = math.cos(radians), math.sin(radians)
    return np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]])


def _sheared(x: float, y: float) -> Matrix:
    """First along y, then along x; torchvision's definition."""
    along_y = np.array([[1, 0, 0], [-math.tan(y), 1, 0], [0, 0, 1]])
    along_x = np.array([[1, -math.tan(x), 0], [0, 1, 0], [0, 0, 1]])
    both: Matrix = along_y @ along_x
    return both


def _fill(fill: Fill, pixels: Pixels) -> tuple[float, ...]:
    channels = pixels.shape[2]
    values = [0.0] if fill is None else [float(fill)] if isinstance(fill, (int, float)) else [float(f) for f in fill]
    if len(values) not in (1, channels):
        raise ValueError(f"fill has {len(values)} values, but the image has {channels} channels")
    values = values * channels if len(values) == 1 else values
    return tuple([*values, 0.0, 0.0, 0.0, 0.0][:4])


def two_sides(size: int | Sequence[int]) -> tuple[int, int]:
    """Height and width from one number or two."""
    if isinstance(size, int):
        return size, size
    if len(size) == 1:
        return int(size[0]), int(size[0])
    if len(size) != 2:
        raise ValueError(f"size is one number or (height, width), but got {size!r}")
    return int(size[0]), int(size[1])


def four_sides(padding: int | Sequence[int]) -> tuple[int, int, int, int]:
    """Left, top, right, bottom from one, two or four numbers."""
    sides = [padding] if isinstance(padding, int) else [int(side) for side in padding]
    if len(sides) not in (1, 2, 4):
        raise ValueError(f"padding is one number, two or four, but got {padding!r}")
    left, top, right, bottom = sides * (4 // len(sides))
    return left, top, right, bottom
