"""Transforms made of transforms, and the way of an image through them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seamline.nano.torch.vision import randomness
from seamline.nano.torch.vision.encoded import Encoded
from seamline.nano.torch.vision.geometry import Cut
from seamline.nano.torch.vision.pixels import Picture, Pixels, channels_first, is_picture, of_file
from seamline.nano.torch.vision.resampling import Part
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.transforms.conversion import Normalize, PILToTensor, ToTensor
from seamline.nano.torch.vision.transforms.resize import Resize, Resizing
from seamline.nano.torch.vision.transforms.transform import PixelTransform, Transform, is_deterministic


class Container(Transform):
    """Transforms in a row, chosen anew for each image."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        if not hasattr(transforms, "__iter__"):
            raise TypeError(f"transforms must be a list of transforms, but got {type(transforms).__name__}")
        self.transforms = transforms

    @abstractmethod
    def chosen(self) -> Iterable[Any]:
        """Those for this image."""

    @property
    def deterministic(self) -> bool:
        return False

    def __call__(self, image: Any) -> Any:
        return run(self, image)

    def __repr__(self) -> str:
        lines = [f"    {line}" for step in self.transforms for line in repr(step).splitlines()]
        return "\n".join([f"{type(self).__name__}(", *lines, ")"])


class Compose(Container):
    """One after the other. ``transforms`` is a list that may be changed later."""

    def chosen(self) -> Iterable[Any]:
        return self.transforms

    @property
    def deterministic(self) -> bool:
        return all(is_deterministic(step) for step in self.transforms)


class RandomApply(Container):
    """All of them with probability ``p``, else none."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = p

    def chosen(self) -> Iterable[Any]:
        return self.transforms if randomness.chance(self.p) else ()


class RandomChoice(Container):
    """One of them, by the weights ``p`` if given."""

    def __init__(self, transforms: Sequence[Any], p: Sequence[float] | None = None) -> None:
        super().__init__(transforms)
        if p is not None and len(p) != len(transforms):
            raise ValueError(f"p has {len(p)} weights for {len(transforms)} transforms")
        self.p = p

    def chosen(self) -> Iterable[Any]:
        return [self.transforms[randomness.weighted(list(self.p or [1.0] * len(self.transforms)))]]


class RandomOrder(Container):
    """All of them, in an order drawn anew."""

    def chosen(self) -> Iterable[Any]:
        return [self.transforms[place] for place in randomness.order(len(self.transforms))]


class Lambda(Transform):
    """A function of the user's. It gets what torchvision would give it: a PIL image if the image is one or a file."""

    def __init__(self, lambd: Callable[[Any], Any]) -> None:
        if not callable(lambd):
            raise TypeError(f"lambd must be callable, but got {type(lambd).__name__}")
        self.lambd = lambd

    @property
    def deterministic(self) -> bool:
        return is_deterministic(self.lambd)

    def __call__(self, image: Any) -> Any:
        return self.lambd(image)


@dataclass(frozen=True, slots=True)
class _AlmostResized:
    """A picture or a file that ``Resize`` has seen; if a part is cut out of it next, only that part is made."""

    source: Picture | Encoded
    resizing: Resizing

    @property
    def size(self) -> tuple[int, int]:
        return self.resizing.size

    def picture(self, part: Part | None = None) -> Picture:
        if isinstance(self.source, Encoded):
            return of_file(self.resizing.read(self.source, part))
        return self.source.given(self.resizing(self.source.pixels, part))


@dataclass(frozen=True, slots=True)
class _AlmostTensor:
    """Pixels that ``ToTensor`` has seen; if ``Normalize`` is next, both are done in one pass."""

    pixels: Pixels


def run(transform: Any, image: Any) -> Any:
    """Send an image, or a file that is not decoded yet, through a transform; without one it is only decoded.

    Between transforms of ours pixels stay as they are; anybody else gets the form in which the image came.
    """
    if transform is not None:
        for step in _steps(transform):
            image = _step(step, image)
    return _outside(image)


def _steps(transform: Any) -> Iterator[Any]:
    """The transforms within a transform; containers draw when it is their turn."""
    for step in transform.chosen() if isinstance(transform, Container) else (transform,):
        if isinstance(step, Container):
            yield from _steps(step)
        else:
            yield step


def _step(step: Any, image: Any) -> Any:
    if is_picture(image) and isinstance(step, PixelTransform):
        image = Picture.of(image)
    if isinstance(image, (Encoded, Picture, _AlmostResized)):
        if isinstance(step, PixelTransform):
            return _changed(step, image)
        if isinstance(step, ToTensor):
            return _AlmostTensor(_picture(image).pixels)
        if isinstance(step, PILToTensor):
            return channels_first(_picture(image).pixels)
    if isinstance(image, _AlmostTensor) and isinstance(step, Normalize):
        return step.of_pixels(image.pixels)
    if _draws_elsewhere(step):
        randomness.seed_others()
    return step(_outside(image))


def _draws_elsewhere(step: Any) -> bool:
    """Whether it may draw from generators that we know nothing of."""
    ours = isinstance(step, Transform) and not isinstance(step, Lambda)
    return not ours and not is_deterministic(step)


def _changed(step: PixelTransform, image: Encoded | Picture | _AlmostResized) -> Picture | _AlmostResized:
    if isinstance(image, Encoded) and not isinstance(step, Resize):
        return of_file(step.read(image))
    work = step.plan(*image.size)
    if isinstance(image, _AlmostResized) and isinstance(work, Cut):
        return image.picture(work.part)
    if isinstance(work, Resizing):
        return _AlmostResized(image.picture() if isinstance(image, _AlmostResized) else image, work)
    picture = _picture(image)
    return picture.given(work(picture.pixels))


def _picture(image: Encoded | Picture | _AlmostResized) -> Picture:
    if isinstance(image, _AlmostResized):
        return image.picture()
    return of_file(image.pixels()) if isinstance(image, Encoded) else image


def _outside(image: Any) -> Any:
    """An image as anybody else may see it."""
    if isinstance(image, (Encoded, Picture, _AlmostResized)):
        return _picture(image).image()
    return functional.pixels_to_tensor(image.pixels) if isinstance(image, _AlmostTensor) else image
