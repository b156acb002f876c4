"""Transforms that move pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import torch

from seamline.nano.torch.vision import geometry, randomness
from seamline.nano.torch.vision.encoded import WHOLE, Detail, Encoded
from seamline.nano.torch.vision.pixels import Pixels, Work, size_of
from seamline.nano.torch.vision.resampling import InterpolationMode, interpolation_mode, resize, smooths
from seamline.nano.torch.vision.transforms.chance import Chance
from seamline.nano.torch.vision.transforms.transform import PixelTransform, RandomTransform


class CenterCrop(PixelTransform):
    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = geometry.two_sides(size)

    def plan(self, height: int, width: int) -> Work:
        if height < self.size[0] or width < self.size[1]:
            return partial(geometry.center_crop, output_size=self.size)
        return geometry.middle_of(height, width, self.size)


class Pad(PixelTransform):
    def __init__(self, padding: int | Sequence[int], fill: geometry.Fill = 0, padding_mode: str = "constant") -> None:
        geometry.four_sides(padding)
        self.padding = padding
        self.fill = fill
        self.padding_mode = padding_mode

    def plan(self, height: int, width: int) -> Work:
        return partial(geometry.pad, padding=self.padding, fill=self.fill, padding_mode=self.padding_mode)


class RandomCrop(RandomTransform):
    """A part of this size from anywhere, after padding if asked for."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: geometry.Fill = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = geometry.two_sides(size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def get_params(img: Any, output_size: tuple[int, int]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part."""
        return _place(*size_of(img), *output_size)

    def plan(self, height: int, width: int) -> Work:
        frames = list(self._frames(height, width))
        for left, top, right, bottom in frames:
            height, width = height + top + bottom, width + left + right
        cut = geometry.Cut(_place(height, width, *self.size))

        def pad_and_cut(pixels: Pixels) -> Pixels:
            for frame in frames:
                pixels = geometry.pad(pixels, frame, self.fill, self.padding_mode)
            return cut(pixels)

        return pad_and_cut if frames else cut

    def _frames(self, height: int, width: int) -> list[tuple[int, int, int, int]]:
        frames = [] if self.padding is None else [geometry.four_sides(self.padding)]
        for left, top, right, bottom in frames:
            height, width = height + top + bottom, width + left + right
        if self.pad_if_needed:
            missing_y, missing_x = max(self.size[0] - height, 0), max(self.size[1] - width, 0)
            if missing_y or missing_x:
                frames.append((missing_x, missing_y, missing_x, missing_y))
        return frames


class RandomResizedCrop(RandomTransform):
    """A part of random area and shape, resized; of a large JPEG only as much is decoded as the part needs.

    Parts much larger than ``size`` start and end at multiples of 2, 4 or 8 pixels, so that they lie on the grid of a
    picture that was decoded smaller; that moves an edge by less than half a pixel of the result.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        antialias: bool | None = True,
    ) -> None:
        if scale[0] > scale[1] or ratio[0] > ratio[1]:
            raise ValueError(f"scale and ratio must be (low, high), but got scale={scale}, ratio={ratio}")
        self.size = geometry.two_sides(size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation_mode(interpolation)
        self.antialias = antialias

    @staticmethod
    def get_params(img: Any, scale: tuple[float, float], ratio: tuple[float, float]) -> tuple[int, int, int, int]:
        """Top, left, height and width of a part."""
        return _part(*size_of(img), scale, ratio)

    def plan(self, height: int, width: int) -> Work:
        part, _ = self._choose(height, width)
        return partial(self._resized, shrink=1, part=part)

    def read(self, encoded: Encoded) -> Pixels:
        part, detail = self._choose(*encoded.size)
        return self._resized(*encoded.decoded(detail), part)

    def _choose(self, height: int, width: int) -> tuple[tuple[int, ...], Detail]:
        part = _part(height, width, self.scale, self.ratio)
        smooth = smooths(self.interpolation, self.antialias)
        detail = Detail.enough_for(self.size, part[2], part[3]) if smooth else WHOLE
        top, bottom = _on_grid(part[0], part[0] + part[2], height, detail.shrink)
        left, right = _on_grid(part[1], part[1] + part[3], width, detail.shrink)
        return (top, left, bottom - top, right - left), detail

    def _resized(self, pixels: Pixels, shrink: int, part: tuple[int, ...]) -> Pixels:
        top, left, height, width = (side // shrink for side in part)
        cut = pixels[top : top + height, left : left + width]
        return resize(cut, self.size, self.interpolation, antialias=bool(self.antialias))


class RandomHorizontalFlip(Chance):
    def change(self, pixels: Pixels) -> Pixels:
        return geometry.hflip(pixels)


class RandomVerticalFlip(Chance):
    def change(self, pixels: Pixels) -> Pixels:
        return geometry.vflip(pixels)


class RandomRotation(RandomTransform):
    """Turn by an angle between two, or between minus and plus one, in degrees."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: geometry.Fill = 0,
    ) -> None:
        self.degrees = _around_zero("degrees", degrees)
        self.interpolation = interpolation_mode(interpolation)
        self.expand = expand
        self.center = center
        self.fill = fill

    @staticmethod
    def get_params(degrees: Sequence[float]) -> float:
        return randomness.uniform(degrees[0], degrees[1])

    def plan(self, height: int, width: int) -> Work:
        return partial(
            geometry.rotate,
            angle=self.get_params(self.degrees),
            interpolation=self.interpolation,
            expand=self.expand,
            center=self.center,
            fill=self.fill,
        )


class RandomAffine(RandomTransform):
    """Turn, move, scale and shear by amounts within the given ranges."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: geometry.Fill = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        if translate is not None and not all(0 <= part <= 1 for part in translate):
            raise ValueError(f"translate is two parts of the size between 0 and 1, but got {translate}")
        if scale is not None and min(scale) <= 0:
            raise ValueError(f"scale must be positive, but got {scale}")
        self.degrees = _around_zero("degrees", degrees)
        self.translate = translate
        self.scale = scale
        self.shear = None if shear is None else _around_zero("shear", shear, lengths=(2, 4))
        self.interpolation = interpolation_mode(interpolation)
        self.fill = fill
        self.center = center

    @staticmethod
    def get_params(
        degrees: Sequence[float],
        translate: Sequence[float] | None,
        scale_ranges: Sequence[float] | None,
        shears: Sequence[float] | None,
        img_size: Sequence[int],
    ) -> tuple[float, tuple[int, int], float, tuple[float, float]]:
        """Angle, translation, scale and shear for an image of (width, height)."""
        angle = randomness.uniform(degrees[0], degrees[1])
        moved = (0, 0)
        if translate is not None:
            far = [translate[0] * img_size[0], translate[1] * img_size[1]]
            moved = (round(randomness.uniform(-far[0], far[0])), round(randomness.uniform(-far[1], far[1])))
        scale = 1.0 if scale_ranges is None else randomness.uniform(scale_ranges[0], scale_ranges[1])
        along_x = along_y = 0.0
        if shears is not None:
            along_x = randomness.uniform(shears[0], shears[1])
            along_y = randomness.uniform(shears[2], shears[3]) if len(shears) == 4 else 0.0
        return angle, moved, scale, (along_x, along_y)

    def plan(self, height: int, width: int) -> Work:
        angle, moved, scale, shear = self.get_params(
            self.degrees, self.translate, self.scale, self.shear, (width, height)
        )
        return partial(
            geometry.affine,
            angle=angle,
            translate=moved,
            scale=scale,
            shear=shear,
            interpolation=self.interpolation,
            fill=self.fill,
            center=self.center,
        )


class RandomPerspective(Chance):
    """Look at the picture from another side, with probability ``p``."""

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        fill: geometry.Fill = 0,
    ) -> None:
        super().__init__(p)
        self.distortion_scale = distortion_scale
        self.interpolation = interpolation_mode(interpolation)
        self.fill = fill

    @staticmethod
    def get_params(width: int, height: int, distortion_scale: float) -> tuple[list[list[int]], list[list[int]]]:
        """The corners, and where they go: top left, top right, bottom right, bottom left."""
        far_x, far_y = int(distortion_scale * (width // 2)), int(distortion_scale * (height // 2))
        left, right = (0, far_x + 1), (width - far_x - 1, width)
        top, bottom = (0, far_y + 1), (height - far_y - 1, height)
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        ends = [[randomness.integer(*x), randomness.integer(*y)] for x, y in corners]
        return [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], ends

    def certain(self, height: int, width: int) -> Work:
        starts, ends = self.get_params(width, height, self.distortion_scale)
        return partial(
            geometry.perspective, startpoints=starts, endpoints=ends, interpolation=self.interpolation, fill=self.fill
        )


def _place(height: int, width: int, part_height: int, part_width: int) -> tuple[int, int, int, int]:
    if height < part_height or width < part_width:
        raise ValueError(
            f"cannot cut {part_height} x {part_width} from an image of {height} x {width}; resize it first, "
            "or use pad_if_needed=True"
        )
    if (height, width) == (part_height, part_width):
        return 0, 0, height, width
    top = randomness.integer(0, height - part_height + 1)
    return top, randomness.integer(0, width - part_width + 1), part_height, part_width


def _part(height: int, width: int, scale: Sequence[float], ratio: Sequence[float]) -> tuple[int, int, int, int]:
    log_ratio = _logarithms(tuple(ratio))
    for _ in range(10):
        area = height * width * randomness.uniform(scale[0], scale[1])
        shape = math.exp(randomness.uniform(log_ratio[0], log_ratio[1]))
        part_width, part_height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < part_width <= width and 0 < part_height <= height:
            top = randomness.integer(0, height - part_height + 1)
            return top, randomness.integer(0, width - part_width + 1), part_height, part_width
    part_height, part_width = height, width
    if width / height < min(ratio):
        part_height = round(width / min(ratio))
    elif width / height > max(ratio):
        part_width = round(height * max(ratio))
    return (height - part_height) // 2, (width - part_width) // 2, part_height, part_width


@lru_cache(maxsize=64)
def _logarithms(numbers: tuple[float, ...]) -> list[float]:
    """As torchvision has them: in single precision."""
    found: list[float] = torch.log(torch.tensor(numbers)).tolist()
    return found


def _on_grid(first: int, last: int, limit: int, step: int) -> tuple[int, int]:
    """The nearest multiples of ``step`` within the picture."""
    return round(first / step) * step, min(round(last / step), limit // step) * step


def _around_zero(name: str, given: float | Sequence[float], lengths: tuple[int, ...] = (2,)) -> list[float]:
    if isinstance(given, (int, float)):
        if given < 0:
            raise ValueError(f"{name} must not be negative if it is one number, but got {given}")
        return [-float(given), float(given)]
    if len(given) not in lengths:
        raise ValueError(f"{name} is one number or {' or '.join(map(str, lengths))} of them, but got {given!r}")
    return [float(value) for value in given]
