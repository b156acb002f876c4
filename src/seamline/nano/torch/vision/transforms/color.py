"""Transforms that change colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from seamline.nano.torch.vision import color, randomness
from seamline.nano.torch.vision.pixels import Pixels, Work
from seamline.nano.torch.vision.transforms.chance import Chance
from seamline.nano.torch.vision.transforms.transform import PixelTransform, RandomTransform

Range = tuple[float, float]


class Grayscale(PixelTransform):
    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    def plan(self, height: int, width: int) -> Work:
        return partial(color.to_grayscale, num_output_channels=self.num_output_channels)


class ColorJitter(RandomTransform):
    """Brightness, contrast, saturation and hue, each by a random amount and in random order."""

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
    ) -> None:
        self.brightness = _factors("brightness", brightness)
        self.contrast = _factors("contrast", contrast)
        self.saturation = _factors("saturation", saturation)
        self.hue = _hues(hue)

    @property
    def deterministic(self) -> bool:
        return not any((self.brightness, self.contrast, self.saturation, self.hue))

    @staticmethod
    def get_params(
        brightness: Range | None, contrast: Range | None, saturation: Range | None, hue: Range | None
    ) -> tuple[list[int], float | None, float | None, float | None, float | None]:
        """The order (of brightness, contrast, saturation, hue) and the four amounts."""
        order = randomness.order(4)
        ranges = (brightness, contrast, saturation, hue)
        amounts = [None if given is None else randomness.uniform(*given) for given in ranges]
        return order, amounts[0], amounts[1], amounts[2], amounts[3]

    def plan(self, height: int, width: int) -> Work:
        order, *amounts = self.get_params(self.brightness, self.contrast, self.saturation, self.hue)

        def jitter(pixels: Pixels) -> Pixels:
            for number in order:
                amount = amounts[number]
                if amount is not None:
                    pixels = _ADJUST[number](pixels, amount)
            return pixels

        return jitter


_ADJUST = (color.adjust_brightness, color.adjust_contrast, color.adjust_saturation, color.adjust_hue)


class RandomGrayscale(Chance):
    """Gray with as many channels as before."""

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)

    def change(self, pixels: Pixels) -> Pixels:
        return color.to_grayscale(pixels, pixels.shape[2])


class RandomInvert(Chance):
    def change(self, pixels: Pixels) -> Pixels:
        return color.invert(pixels)


class RandomPosterize(Chance):
    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    def change(self, pixels: Pixels) -> Pixels:
        return color.posterize(pixels, self.bits)


class RandomSolarize(Chance):
    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    def change(self, pixels: Pixels) -> Pixels:
        return color.solarize(pixels, self.threshold)


class RandomAdjustSharpness(Chance):
    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = sharpness_factor

    def change(self, pixels: Pixels) -> Pixels:
        return color.adjust_sharpness(pixels, self.sharpness_factor)


class RandomAutocontrast(Chance):
    def change(self, pixels: Pixels) -> Pixels:
        return color.autocontrast(pixels)


class RandomEqualize(Chance):
    def change(self, pixels: Pixels) -> Pixels:
        return color.equalize(pixels)


class GaussianBlur(RandomTransform):
    """Blur by a random ``sigma`` between two; one number is always that."""

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        low, high = (sigma, sigma) if isinstance(sigma, (int, float)) else sigma
        if not 0 < low <= high:
            raise ValueError(f"sigma is positive and (low, high), but got {sigma!r}")
        self.kernel_size = kernel_size
        self.sigma = (float(low), float(high))

    @property
    def deterministic(self) -> bool:
        return self.sigma[0] == self.sigma[1]

    @staticmethod
    def get_params(sigma_min: float, sigma_max: float) -> float:
        return randomness.uniform(sigma_min, sigma_max)

    def plan(self, height: int, width: int) -> Work:
        return partial(color.gaussian_blur, kernel_size=self.kernel_size, sigma=self.get_params(*self.sigma))


def _factors(name: str, given: float | Sequence[float]) -> Range | None:
    """Around 1 by so much, or between two factors; nothing if that changes nothing."""
    if isinstance(given, (int, float)):
        if given < 0:
            raise ValueError(f"{name} must not be negative if it is one number, but got {given}")
        low, high = max(1.0 - given, 0.0), 1.0 + given
    else:
        low, high = float(given[0]), float(given[1])
    if not 0 <= low <= high:
        raise ValueError(f"`0 <= low <= high` must hold for {name}, but got ({low}, {high})")
    return None if low == high == 1 else (low, high)


def _hues(given: float | Sequence[float]) -> Range | None:
    low, high = (-float(given), float(given)) if isinstance(given, (int, float)) else (given[0], given[1])
    if not -0.5 <= low <= high <= 0.5:
        raise ValueError(f"`-0.5 <= low <= high <= 0.5` must hold for hue, but got ({low}, {high})")
    return None if low == high == 0 else (low, high)
