"""The transform that changes the size of a picture, and its work, which can be put off until a part is cut out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seamline.nano.torch.vision import geometry
from seamline.nano.torch.vision.encoded import WHOLE, Detail, Encoded
from seamline.nano.torch.vision.pixels import Pixels
from seamline.nano.torch.vision.resampling import InterpolationMode, Part, interpolation_mode, resize, smooths
from seamline.nano.torch.vision.transforms.transform import PixelTransform


@dataclass(frozen=True, slots=True)
class Resizing:
    """Resize to (height, width); of the result, all or a part is made."""

    size: tuple[int, int]
    interpolation: InterpolationMode
    antialias: bool

    def __call__(self, pixels: Pixels, part: Part | None = None) -> Pixels:
        return resize(pixels, self.size, self.interpolation, antialias=self.antialias, part=part)

    def read(self, encoded: Encoded, part: Part | None = None) -> Pixels:
        """The same of a file, which is decoded smaller if it is much larger."""
        height, width = encoded.size
        smooth = smooths(self.interpolation, self.antialias)
        pixels, shrink = encoded.decoded(Detail.enough_for(self.size, height, width) if smooth else WHOLE)
        extent = None if shrink == 1 else (height / shrink, width / shrink)
        return resize(pixels, self.size, self.interpolation, antialias=self.antialias, extent=extent, part=part)


class Resize(PixelTransform):
    """To (height, width), or the shorter side to a number; a JPEG that is much larger is decoded smaller.

    Where ``CenterCrop`` or ``RandomCrop`` comes next in a ``Compose``, no more is made than the part that they keep.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        if not isinstance(size, int) and len(size) not in (1, 2):
            raise ValueError(f"size is one number or (height, width), but got {size!r}")
        self.size = size
        self.max_size = max_size
        self.interpolation = interpolation_mode(interpolation)
        self.antialias = antialias

    def plan(self, height: int, width: int) -> Resizing:
        size = geometry.resized_size(height, width, self.size, self.max_size)
        return Resizing(size, self.interpolation, bool(self.antialias))

    def read(self, encoded: Encoded) -> Pixels:
        return self.plan(*encoded.size).read(encoded)
