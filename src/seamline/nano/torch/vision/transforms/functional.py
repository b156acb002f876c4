"""The functions under the transforms, with torchvision's names: for PIL images, arrays and tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec

import numpy as np
import torch
from PIL import Image

from seamline.nano.torch.vision import color, geometry
from seamline.nano.torch.vision.pixels import (
    Picture,
    Pixels,
    channels_first,
    channels_of,
    on_any,
    size_of,
    three_axes,
    to_pil,
)
from seamline.nano.torch.vision.resampling import InterpolationMode

P = ParamSpec("P")


def _for_any_image(work: Callable[Concatenate[Pixels, P], Pixels]) -> Callable[Concatenate[Any, P], Any]:
    @wraps(work)
    def function(image: Any, /, *args: P.args, **options: P.kwargs) -> Any:
        return on_any(image, lambda pixels: work(pixels, *args, **options))

    return function


hflip = _for_any_image(geometry.hflip)
vflip = _for_any_image(geometry.vflip)
crop = _for_any_image(geometry.crop)
center_crop = _for_any_image(geometry.center_crop)
pad = _for_any_image(geometry.pad)
resize = _for_any_image(geometry.resize_to)
resized_crop = _for_any_image(geometry.resized_crop)
rotate = _for_any_image(geometry.rotate)
affine = _for_any_image(geometry.affine)
perspective = _for_any_image(geometry.perspective)
adjust_brightness = _for_any_image(color.adjust_brightness)
adjust_contrast = _for_any_image(color.adjust_contrast)
adjust_saturation = _for_any_image(color.adjust_saturation)
adjust_hue = _for_any_image(color.adjust_hue)
adjust_gamma = _for_any_image(color.adjust_gamma)
adjust_sharpness = _for_any_image(color.adjust_sharpness)
to_grayscale = _for_any_image(color.to_grayscale)
rgb_to_grayscale = to_grayscale
invert = _for_any_image(color.invert)
posterize = _for_any_image(color.posterize)
solarize = _for_any_image(color.solarize)
autocontrast = _for_any_image(color.autocontrast)
equalize = _for_any_image(color.equalize)
gaussian_blur = _for_any_image(color.gaussian_blur)


def get_image_size(img: Any) -> list[int]:
    """Width and height."""
    return list(reversed(size_of(img)))


def get_image_num_channels(img: Any) -> int:
    return channels_of(img)


def get_dimensions(img: Any) -> list[int]:
    """Channels, height and width."""
    return [channels_of(img), *size_of(img)]


def to_tensor(pic: Any) -> torch.Tensor:
    """Channels, height, width; uint8 becomes floats between 0 and 1, other types keep their values."""
    return pixels_to_tensor(_pixels(pic))


def pil_to_tensor(pic: Any) -> torch.Tensor:
    """Channels, height, width with the same values."""
    return channels_first(_pixels(pic))


def to_pil_image(pic: Any, mode: str | None = None) -> Image.Image:
    """A PIL image of a tensor (channels, height, width) or an array (height, width, channels)."""
    if isinstance(pic, torch.Tensor):
        if pic.ndim not in (2, 3):
            raise ValueError(f"a picture has 2 or 3 axes, but this tensor has {pic.ndim}")
        if pic.is_floating_point() and mode != "F":
            pic = pic.mul(255).byte()
        pic = np.asarray(pic.detach().cpu().numpy())
        pic = pic.transpose(1, 2, 0) if pic.ndim == 3 else pic
    if not isinstance(pic, np.ndarray):
        raise TypeError(f"expected a tensor or an array, but got {type(pic).__name__}")
    pixels = three_axes(pic)
    return to_pil(pixels, mode or _usual_mode(pixels))


def normalize(tensor: torch.Tensor, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> torch.Tensor:
    """Subtract ``mean`` and divide by ``std``, for each channel of (..., channels, height, width)."""
    if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
        kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
        raise TypeError(f"normalize needs a tensor of floats, but got {kind}; put ToTensor before it")
    if tensor.ndim < 3:
        raise ValueError(f"normalize needs (..., channels, height, width), but got {tuple(tensor.shape)}")
    center, spread = _by_channel(mean, tensor), _by_channel(std, tensor)
    if not bool(spread.all()):
        raise ValueError(f"std={std} contains zero, which nothing can be divided by")
    return tensor.sub_(center).div_(spread) if inplace else tensor.sub(center).div_(spread)


def normalize_uint8(batch: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """``to_tensor`` and ``normalize`` of a batch of uint8 (..., channels, height, width)."""
    if batch.dtype != torch.uint8:
        raise TypeError(f"expected uint8 images, but got {batch.dtype}; let the pipeline end in PILToTensor")
    scale, shift = (part.to(batch.device) for part in _scale_and_shift(tuple(mean), tuple(std)))
    if batch.device.type != "cpu" or batch.ndim <= 3:
        return batch.to(scale.dtype).mul_(scale).add_(shift)
    floats = torch.empty(batch.shape, dtype=scale.dtype)
    for image, result in zip(batch, floats, strict=True):  # one that fits into the cache at a time
        result.copy_(image).mul_(scale).add_(shift)
    return floats


def erase(img: torch.Tensor, i: int, j: int, h: int, w: int, v: Any, inplace: bool = False) -> torch.Tensor:
    """Put ``v`` in place of a rectangle of a tensor."""
    if not isinstance(img, torch.Tensor):
        raise TypeError(f"erase works on tensors, but got {type(img).__name__}; put ToTensor before it")
    img = img if inplace else img.clone()
    img[..., i : i + h, j : j + w] = v
    return img


def pixels_to_tensor(
    pixels: Pixels, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> torch.Tensor:
    """``to_tensor``, with ``normalize`` in the same pass if there are ``mean`` and ``std``."""
    if pixels.dtype != np.uint8:
        tensor = channels_first(pixels)
        return tensor if mean is None or std is None else normalize(tensor, mean, std)
    if mean is None or std is None:
        return channels_first(pixels).to(torch.get_default_dtype()).div_(255)
    return normalize_uint8(channels_first(pixels), mean, std)


@lru_cache(maxsize=64)
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    if not all(std):
        raise ValueError(f"std={std} contains zero, which nothing can be divided by")
    center, spread = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
    kind = torch.get_default_dtype()
    return (1 / (255 * spread)).to(kind), (-center / spread).to(kind)


def _by_channel(values: Sequence[float], like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(values, dtype=like.dtype, device=like.device).view(-1, 1, 1)


def _pixels(pic: Any) -> Pixels:
    if isinstance(pic, Image.Image) and pic.mode == "1":
        pic = pic.convert("L")
    if not isinstance(pic, (Image.Image, np.ndarray)):
        raise TypeError(f"expected a PIL image or an array, but got {type(pic).__name__}")
    return Picture.of(pic).pixels


def _usual_mode(pixels: Pixels) -> str:
    if pixels.shape[2] == 1:
        by_type = {"uint8": "L", "int16": "I;16", "uint16": "I;16", "int32": "I", "float32": "F"}
        if pixels.dtype.name in by_type:
            return by_type[pixels.dtype.name]
    elif pixels.dtype == np.uint8 and pixels.shape[2] <= 4:
        return {2: "LA", 3: "RGB", 4: "RGBA"}[pixels.shape[2]]
    raise TypeError(f"no PIL image has {pixels.shape[2]} channels of {pixels.dtype}")


__all__ = [
    "InterpolationMode",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_gamma",
    "adjust_hue",
    "adjust_saturation",
    "adjust_sharpness",
    "affine",
    "autocontrast",
    "center_crop",
    "crop",
    "equalize",
    "erase",
    "gaussian_blur",
    "get_dimensions",
    "get_image_num_channels",
    "get_image_size",
    "hflip",
    "invert",
    "normalize",
    "normalize_uint8",
    "pad",
    "perspective",
    "pil_to_tensor",
    "posterize",
    "resize",
    "resized_crop",
    "rgb_to_grayscale",
    "rotate",
    "solarize",
    "to_grayscale",
    "to_pil_image",
    "to_tensor",
    "vflip",
]
