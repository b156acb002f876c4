"""Published policies of augmentation: AutoAugment, RandAugment and TrivialAugment.

Each is a table of operations with a strength for each magnitude, and a way to draw from the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from seamline.nano.torch.vision import color, geometry, randomness
from seamline.nano.torch.vision.pixels import Pixels, Work
from seamline.nano.torch.vision.resampling import InterpolationMode, interpolation_mode
from seamline.nano.torch.vision.transforms.transform import RandomTransform, unchanged


@dataclass(frozen=True, slots=True)
class Canvas:
    """What an operation has to know of the picture and of the policy's settings."""

    height: int
    width: int
    interpolation: InterpolationMode
    fill: geometry.Fill

    def affine(self, **changed: Any) -> Work:
        settings = {"angle": 0.0, "translate": (0, 0), "scale": 1.0, "shear": (0.0, 0.0), **changed}
        return partial(geometry.affine, interpolation=self.interpolation, fill=self.fill, **settings)

    def rotate(self, angle: float) -> Work:
        return partial(geometry.rotate, angle=angle, interpolation=self.interpolation, fill=self.fill)


def _solarize(pixels: Pixels, threshold: float) -> Pixels:
    return color.solarize(pixels, threshold * color.bound(pixels) / 255)


def _shear(strength: float) -> float:
    return math.degrees(math.atan(strength))


_WORK: dict[str, Callable[[Canvas, float], Work]] = {
    "Identity": lambda canvas, strength: unchanged,
    "ShearX": lambda canvas, strength: canvas.affine(shear=(_shear(strength), 0.0), center=(0, 0)),
    "ShearY": lambda canvas, strength: canvas.affine(shear=(0.0, _shear(strength)), center=(0, 0)),
    "TranslateX": lambda canvas, strength: canvas.affine(translate=(int(strength), 0)),
    "TranslateY": lambda canvas, strength: canvas.affine(translate=(0, int(strength))),
    "Rotate": lambda canvas, strength: canvas.rotate(strength),
    "Brightness": lambda canvas, strength: partial(color.adjust_brightness, brightness_factor=1 + strength),
    "Color": lambda canvas, strength: partial(color.adjust_saturation, saturation_factor=1 + strength),
    "Contrast": lambda canvas, strength: partial(color.adjust_contrast, contrast_factor=1 + strength),
    "Sharpness": lambda canvas, strength: partial(color.adjust_sharpness, sharpness_factor=1 + strength),
    "Posterize": lambda canvas, strength: partial(color.posterize, bits=int(strength)),
    "Solarize": lambda canvas, strength: partial(_solarize, threshold=strength),
    "AutoContrast": lambda canvas, strength: color.autocontrast,
    "Equalize": lambda canvas, strength: color.equalize,
    "Invert": lambda canvas, strength: color.invert,
}


@dataclass(frozen=True, slots=True)
class Strength:
    """How strong an operation is at each magnitude, and whether it goes both ways."""

    at: Callable[[float, Canvas], float] = lambda part, canvas: 0.0
    signed: bool = False
    graded: bool = True


_NONE = Strength(graded=False)


def _up_to(most: float) -> Strength:
    return Strength(lambda part, canvas: most * part, signed=True)


def _table(shear: float, translate: tuple[Strength, Strength], rotate: float, factor: float, bits: int) -> Any:
    return {
        "Identity": _NONE,
        "ShearX": _up_to(shear),
        "ShearY": _up_to(shear),
        "TranslateX": translate[0],
        "TranslateY": translate[1],
        "Rotate": _up_to(rotate),
        "Brightness": _up_to(factor),
        "Color": _up_to(factor),
        "Contrast": _up_to(factor),
        "Sharpness": _up_to(factor),
        "Posterize": Strength(lambda part, canvas: 8 - round(bits * part)),
        "Solarize": Strength(lambda part, canvas: 255 * (1 - part)),
        "AutoContrast": _NONE,
        "Equalize": _NONE,
    }


_OF_SIZE = (
    Strength(lambda part, canvas: 150 / 331 * canvas.width * part, signed=True),
    Strength(lambda part, canvas: 150 / 331 * canvas.height * part, signed=True),
)
_USUAL: dict[str, Strength] = _table(shear=0.3, translate=_OF_SIZE, rotate=30, factor=0.9, bits=4)
_WIDE: dict[str, Strength] = _table(shear=0.99, translate=(_up_to(32), _up_to(32)), rotate=135, factor=0.99, bits=6)


class _Policy(RandomTransform):
    """Draw operations, then do them one after the other."""

    interpolation: InterpolationMode
    fill: geometry.Fill

    def drawn(self, canvas: Canvas) -> Iterable[tuple[str, float]]:
        """Names of operations and their strengths."""
        raise NotImplementedError

    def plan(self, height: int, width: int) -> Work:
        canvas = Canvas(height, width, self.interpolation, self.fill)
        works = [_WORK[name](canvas, strength) for name, strength in self.drawn(canvas)]

        def augment(pixels: Pixels) -> Pixels:
            for work in works:
                pixels = work(pixels)
            return pixels

        return augment


class RandAugment(_Policy):
    """``num_ops`` operations of one magnitude."""

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: geometry.Fill = None,
    ) -> None:
        if not 0 <= magnitude < num_magnitude_bins:
            raise ValueError(
                f"`0 <= magnitude < num_magnitude_bins` must hold, but got ({magnitude}, {num_magnitude_bins})"
            )
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation = interpolation_mode(interpolation)
        self.fill = fill

    def drawn(self, canvas: Canvas) -> Iterable[tuple[str, float]]:
        names = list(_USUAL)
        for _ in range(self.num_ops):
            name = names[randomness.integer(0, len(names))]
            strength = _USUAL[name].at(self.magnitude / (self.num_magnitude_bins - 1), canvas)
            if _USUAL[name].signed and randomness.signs(1)[0]:
                strength = -strength
            yield name, strength


class TrivialAugmentWide(_Policy):
    """One operation of any magnitude."""

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: geometry.Fill = None,
    ) -> None:
        self.num_magnitude_bins = num_magnitude_bins
        self.interpolation = interpolation_mode(interpolation)
        self.fill = fill

    def drawn(self, canvas: Canvas) -> Iterable[tuple[str, float]]:
        name = list(_WIDE)[randomness.integer(0, len(_WIDE))]
        strength = 0.0
        if _WIDE[name].graded:
            magnitude = randomness.integer(0, self.num_magnitude_bins)
            strength = _WIDE[name].at(magnitude / (self.num_magnitude_bins - 1), canvas)
        if _WIDE[name].signed and randomness.signs(1)[0]:
            strength = -strength
        return [(name, strength)]


class AutoAugmentPolicy(Enum):
    """The data set that a policy was learned on."""

    IMAGENET = "imagenet"


_Step = tuple[str, float, int | None]
_IMAGENET: tuple[tuple[_Step, _Step], ...] = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
    (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
    (("Color", 0.4, 0), ("Equalize", 0.6, None)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
)
_AUTO = {**_USUAL, "Invert": _NONE}
_AUTO_BINS = 10


class AutoAugment(_Policy):
    """One of the pairs of operations that were learned on ImageNet, each done with its probability."""

    def __init__(
        self,
        policy: AutoAugmentPolicy = AutoAugmentPolicy.IMAGENET,
        interpolation: InterpolationMode = InterpolationMode.NEAREST,
        fill: geometry.Fill = None,
    ) -> None:
        if getattr(policy, "value", policy) != "imagenet":
            raise ValueError(f"no policy {policy!r}; there is AutoAugmentPolicy.IMAGENET")
        self.policy = AutoAugmentPolicy.IMAGENET
        self.interpolation = interpolation_mode(interpolation)
        self.fill = fill

    def drawn(self, canvas: Canvas) -> Iterable[tuple[str, float]]:
        pair = _IMAGENET[randomness.integer(0, len(_IMAGENET))]
        luck, signs = randomness.fractions(2), randomness.signs(2)
        for (name, probability, magnitude), drawn, positive in zip(pair, luck, signs, strict=True):
            if drawn <= probability:
                strength = 0.0 if magnitude is None else _AUTO[name].at(magnitude / (_AUTO_BINS - 1), canvas)
                yield name, strength if positive or not _AUTO[name].signed else -strength
