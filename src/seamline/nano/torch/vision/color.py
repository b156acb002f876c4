"""Changing the colours of pixels as Pillow's ``ImageEnhance`` and ``ImageOps`` do.

For uint8 most of these are tables of 256 entries, one look-up for each value. Floating point is between 0 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from seamline.nano.torch.vision.pixels import Pixels, three_axes

_LEVELS = np.arange(256, dtype=np.float32)
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


def is_uint8(pixels: Pixels) -> bool:
    return pixels.dtype == np.uint8


def bound(pixels: Pixels) -> float:
    """The value of white."""
    return 255.0 if is_uint8(pixels) else 1.0


def gray(pixels: Pixels) -> npt.NDArray[np.generic]:
    """Luminance, height x width."""
    if pixels.shape[2] == 1:
        return pixels[:, :, 0]
    if pixels.shape[2] != 3:
        raise ValueError(f"gray values are made from 1 or 3 channels, but this image has {pixels.shape[2]}")
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY))


def to_grayscale(pixels: Pixels, num_output_channels: int = 1) -> Pixels:
    if num_output_channels not in (1, 3):
        raise ValueError(f"num_output_channels is 1 or 3, but got {num_output_channels}")
    one = gray(pixels)[:, :, None]
    return one if num_output_channels == 1 else np.repeat(one, 3, axis=2)


def adjust_brightness(pixels: Pixels, brightness_factor: float) -> Pixels:
    """0 is black, 1 the original, 2 twice as bright."""
    return _away_from(pixels, 0.0, _not_negative("brightness_factor", brightness_factor))


def adjust_contrast(pixels: Pixels, contrast_factor: float) -> Pixels:
    """0 is the mean gray, 1 the original."""
    mean = float(gray(pixels).mean(dtype=np.float64))
    return _away_from(
        pixels, int(mean + 0.5) if is_uint8(pixels) else mean, _not_negative("contrast_factor", contrast_factor)
    )


def adjust_saturation(pixels: Pixels, saturation_factor: float) -> Pixels:
    """0 is gray, 1 the original."""
    _not_negative("saturation_factor", saturation_factor)
    if pixels.shape[2] == 1:
        return pixels
    return _blended(to_grayscale(pixels, 3), pixels, saturation_factor)


def adjust_hue(pixels: Pixels, hue_factor: float) -> Pixels:
    """Turn the colour circle by a part of it, between -0.5 and 0.5."""
    if not -0.5 <= hue_factor <= 0.5:
        raise ValueError(f"`-0.5 <= hue_factor <= 0.5` must hold, but got {hue_factor}")
    if pixels.shape[2] == 1:
        return pixels
    pixels = np.ascontiguousarray(pixels)
    if not is_uint8(pixels):
        circle = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV))
        circle[:, :, 0] = (circle[:, :, 0] + 360 * hue_factor) % 360
        return np.asarray(cv2.cvtColor(circle, cv2.COLOR_HSV2RGB))
    circle = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL))
    circle[:, :, 0] += np.uint8(int(hue_factor * 256) & 255)
    return np.asarray(cv2.cvtColor(circle, cv2.COLOR_HSV2RGB_FULL))


def adjust_gamma(pixels: Pixels, gamma: float, gain: float = 1) -> Pixels:
    _not_negative("gamma", gamma)
    if not is_uint8(pixels):
        return np.clip(gain * pixels**gamma, 0, 1)
    return _looked_up(pixels, (255 + 1 - 1e-3) * gain * (_LEVELS / 255) ** gamma)


def adjust_sharpness(pixels: Pixels, sharpness_factor: float) -> Pixels:
    """0 is smoothed, 1 the original, 2 sharper."""
    _not_negative("sharpness_factor", sharpness_factor)
    if min(pixels.shape[:2]) <= 2:
        return pixels
    pixels = np.ascontiguousarray(pixels)
    smooth = pixels.copy()
    smooth[1:-1, 1:-1] = three_axes(cv2.filter2D(pixels, -1, _SMOOTH))[1:-1, 1:-1]
    return _blended(smooth, pixels, sharpness_factor)


def invert(pixels: Pixels) -> Pixels:
    return np.bitwise_not(pixels) if is_uint8(pixels) else 1 - pixels


def posterize(pixels: Pixels, bits: int) -> Pixels:
    """Keep the highest bits of each value."""
    if not is_uint8(pixels):
        raise TypeError(f"posterize is for uint8 images, but got {pixels.dtype}")
    if not 0 <= bits <= 8:
        raise ValueError(f"`0 <= bits <= 8` must hold, but got {bits}")
    return pixels & np.uint8(256 - (1 << (8 - bits)))


def solarize(pixels: Pixels, threshold: float) -> Pixels:
    """Invert the values that are not below the threshold."""
    if not is_uint8(pixels):
        return np.where(pixels < threshold, pixels, 1 - pixels)
    return _looked_up(pixels, np.where(threshold > _LEVELS, _LEVELS, 255 - _LEVELS))


def autocontrast(pixels: Pixels) -> Pixels:
    """Stretch each channel from black to white."""
    low, high = pixels.min((0, 1)), pixels.max((0, 1))
    if not is_uint8(pixels):
        flat = high <= low
        return np.clip(np.where(flat, pixels, (pixels - low) / np.where(flat, 1, high - low)), 0, 1)
    return _by_channel(pixels, [_stretched(float(a), float(b)) for a, b in zip(low, high, strict=True)])


def equalize(pixels: Pixels) -> Pixels:
    """Spread the values of each channel so that all are about as frequent."""
    if not is_uint8(pixels):
        raise TypeError(f"equalize is for uint8 images, but got {pixels.dtype}")
    counts = [np.bincount(pixels[:, :, channel].ravel(), minlength=256) for channel in range(pixels.shape[2])]
    return _by_channel(pixels, [_equal(count) for count in counts])


def gaussian_blur(
    pixels: Pixels, kernel_size: int | Sequence[int], sigma: float | Sequence[float] | None = None
) -> Pixels:
    sides = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
    if any(side <= 0 or side % 2 == 0 for side in sides):
        raise ValueError(f"kernel_size must be odd and positive, but got {kernel_size!r}")
    if sigma is None:
        sigma = [0.3 * ((side - 1) * 0.5 - 1) + 0.8 for side in sides]
    spread = [float(sigma)] * 2 if isinstance(sigma, (int, float)) else [float(one) for one in sigma]
    if min(spread) <= 0:
        raise ValueError(f"sigma must be positive, but got {sigma!r}")
    pixels = np.ascontiguousarray(pixels)
    blurred = cv2.GaussianBlur(
        pixels, (sides[0], sides[-1]), spread[0], sigmaY=spread[-1], borderType=cv2.BORDER_REFLECT_101
    )
    return three_axes(blurred)


def _away_from(pixels: Pixels, base: float, factor: float) -> Pixels:
    """Each value's distance from one base value, multiplied."""
    if is_uint8(pixels):
        return _looked_up(pixels, np.float32(base) + np.float32(factor) * (_LEVELS - np.float32(base)))
    return np.clip(base + factor * (pixels - base), 0, 1)


def _blended(base: Pixels, pixels: Pixels, factor: float) -> Pixels:
    mixed = three_axes(cv2.addWeighted(pixels, factor, base, 1 - factor, 0))
    return mixed if is_uint8(pixels) else np.clip(mixed, 0, 1)


def _looked_up(pixels: Pixels, table: npt.NDArray[np.floating[Any]]) -> Pixels:
    """Values through a table; what is between two levels is cut off, as in Pillow."""
    levels = np.clip(table, 0, 255).astype(np.uint8)
    return three_axes(cv2.LUT(np.ascontiguousarray(pixels), levels))


def _by_channel(pixels: Pixels, tables: Sequence[npt.NDArray[np.uint8]]) -> Pixels:
    table = np.stack(tables, axis=1).reshape(1, 256, len(tables))
    return three_axes(cv2.LUT(np.ascontiguousarray(pixels), table))


def _stretched(low: float, high: float) -> npt.NDArray[np.uint8]:
    if high <= low:
        return _LEVELS.astype(np.uint8)
    scale = 255.0 / (high - low)
    return np.clip(_LEVELS.astype(np.float64) * scale - low * scale, 0, 255).astype(np.uint8)


def _equal(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    present = counts[counts > 0]
    step = int(present.sum() - present[-1]) // 255
    if len(present) <= 1 or step == 0:
        return _LEVELS.astype(np.uint8)
    spread: npt.NDArray[np.int64] = (step // 2 + np.cumsum(counts) - counts) // step
    return np.clip(spread, 0, 255).astype(np.uint8)


def _not_negative(name: str, value: float) -> float:
    if value < 0:
        raise ValueError(f"{name} must not be negative, but got {value}")
    return value
