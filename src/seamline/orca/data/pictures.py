"""Image files as arrays of height x width x RGB."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from seamline.core.errors import SeamlineError, UnavailableError

Pixels: TypeAlias = npt.NDArray[np.uint8]
Size: TypeAlias = tuple[int, int]
"""Height and width."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm")


class DamagedFileError(SeamlineError, OSError):
    """A file is not of the format that it should be, or is damaged; the message names it."""


def check_installed() -> None:
    for package in ("PIL", "simplejpeg"):
        if find_spec(package) is None:
            raise UnavailableError.needs(package, "vision")


def decoded(data: bytes, name: str, size: Size | None = None) -> Pixels:
    """The pixels of an encoded image, of its own size or resized with antialiasing."""
    import simplejpeg  # type: ignore[import-untyped]
    from PIL import Image

    if size is None and data.startswith(b"\xff\xd8\xff"):
        with contextlib.suppress(ValueError):  # something that Pillow is less strict about, or calls by its name
            if simplejpeg.decode_jpeg_header(data)[2] not in ("CMYK", "YCCK"):
                pixels: Pixels = simplejpeg.decode_jpeg(data, "RGB")
                return pixels
    try:
        with Image.open(BytesIO(data)) as image:
            picture = image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DamagedFileError(f"{name} is not an image, or is damaged: {error}") from error
    if size is not None:
        picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    return np.asarray(picture)


def together(pictures: Sequence[Pixels], size: Size | None) -> npt.NDArray[Any]:
    """One array if all are of one size by agreement, else an array of arrays, whatever sizes they happen to have."""
    if size is None:
        return objects(pictures)
    return np.stack(pictures) if pictures else np.empty((0, *size, 3), np.uint8)


def objects(values: Sequence[Any]) -> npt.NDArray[np.object_]:
    """A flat array of anything, also of arrays of the same shape."""
    array = np.empty(len(values), object)
    for number, value in enumerate(values):
        array[number] = value
    return array
