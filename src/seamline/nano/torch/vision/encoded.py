"""Image files, decoded only when it is known how large the picture has to be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path

import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from PIL import Image

from seamline.core.errors import SeamlineError
from seamline.nano.torch.vision.pixels import Pixels

_SHRINKS = (8, 4, 2)  # what libjpeg-turbo can divide by while it decodes, with vector instructions
_MARGIN = 2.5
_COARSE_MARGIN = 1.25


class UnreadableImageError(SeamlineError, OSError):
    """A file is not an image, or is damaged; the message names it."""


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a JPEG is decoded: each side divided by ``shrink``, and colours of half the resolution repeated
    instead of interpolated if ``coarse``.
    """

    shrink: int = 1
    coarse: bool = False

    @classmethod
    def enough_for(cls, needed: tuple[int, int], height: int, width: int) -> Detail:
        """The least that will do for a picture of this size that is then resized to ``needed``, with antialiasing.

        A shrunk picture keeps 2.5 times the rows and columns that are needed: photographs then stay within 1/255 of
        Pillow's on average, where 2 lets the worst be 1.9/255 off. Coarse colours cost 0.3/255.
        """
        spare = min(height / needed[0], width / needed[1])
        shrink = next((shrink for shrink in _SHRINKS if spare >= shrink * _MARGIN), 1)
        return cls(shrink, spare >= _COARSE_MARGIN)


WHOLE = Detail()


class Encoded:
    """The bytes of an image file. A JPEG can be decoded smaller than it is, which takes less time."""

    def __init__(self, path: str | Path) -> None:
        self._path = path
        try:
            with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - it is called for every image
                self._data = file.read()
        except OSError as error:
            raise UnreadableImageError(f"{path} cannot be read: {error.strerror}") from error
        self._jpeg_size = _jpeg_size(self._data)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self._jpeg_size or self._by_pillow.shape[:2]

    def pixels(self) -> Pixels:
        """The whole picture, in RGB."""
        return self.decoded(WHOLE)[0]

    def decoded(self, detail: Detail) -> tuple[Pixels, int]:
        """The picture with no more than this detail, and by what its sides were divided (and rounded up)."""
        if self._jpeg_size is None:
            return self._by_pillow, 1
        size = tuple(-(-side // detail.shrink) for side in self._jpeg_size)
        options = {"min_height": size[0], "min_width": size[1]} if detail.shrink > 1 else {}
        try:
            pixels: Pixels = simplejpeg.decode_jpeg(self._data, "RGB", fastupsample=detail.coarse, **options)
        except ValueError:
            # Its strict mode refuses what others decode with a warning; the second opinion decides.
            return self._by_pillow, 1
        return (pixels, detail.shrink) if pixels.shape[:2] == size else self.decoded(Detail(1, detail.coarse))

    @cached_property
    def _by_pillow(self) -> Pixels:
        try:
            with Image.open(BytesIO(self._data)) as image:
                return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UnreadableImageError(f"{self._path} is not an image, or is damaged: {error}") from error


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Height and width of a JPEG, if libjpeg-turbo can decode it to RGB."""
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    try:
        height, width, colors, _ = simplejpeg.decode_jpeg_header(data)
    except ValueError:
        return None
    return None if colors in ("CMYK", "YCCK") else (height, width)
