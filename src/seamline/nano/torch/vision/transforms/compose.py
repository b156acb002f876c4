"""Transforms made of transforms, and the way of an image through them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from seamline.nano.torch.vision import randomness
from seamline.nano.torch.vision.encoded import Encoded
from seamline.nano.torch.vision.pixels import Picture, Pixels, channels_first, is_picture, of_file
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.transforms.conversion import Normalize, PILToTensor, ToTensor
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
class _AlmostTensor:
    """Pixels that ``ToTensor`` has seen; if ``Normalize`` is next, both are done in one pass."""

    pixels: Pixels


def run(transform: Any, image: Any) -> Any:
    """Send an image, or a file that is not decoded yet, through a transform.

    Between transforms of ours pixels stay as they are; anybody else gets the form in which the image came.
    """
    for step in _steps(transform):
        image = _step(step, image)
    return _outside(image)


def has_foreign(transform: Any) -> bool:
    """Whether anything in it is not ours, so that it may draw from generators that we know nothing of."""
    if isinstance(transform, Container):
        return any(has_foreign(step) for step in transform.transforms)
    return isinstance(transform, Lambda) or not isinstance(transform, Transform)


def _steps(transform: Any) -> Iterator[Any]:
    """The transforms within a transform; containers draw when it is their turn."""
    if isinstance(transform, Container):
        for step in transform.chosen():
            yield from _steps(step)
    else:
        yield transform


def _step(step: Any, image: Any) -> Any:
    if isinstance(step, PixelTransform):
        if isinstance(image, Encoded):
            return of_file(step.read(image))
        if isinstance(image, Picture) or is_picture(image):
            picture = image if isinstance(image, Picture) else Picture.of(image)
            height, width = picture.pixels.shape[:2]
            return picture.given(step.plan(height, width)(picture.pixels))
    if isinstance(step, (ToTensor, PILToTensor)) and isinstance(image, (Encoded, Picture)):
        pixels = image.pixels() if isinstance(image, Encoded) else image.pixels
        return _AlmostTensor(pixels) if isinstance(step, ToTensor) else channels_first(pixels)
    if isinstance(step, Normalize) and isinstance(image, _AlmostTensor):
        return step.of_pixels(image.pixels)
    return step(_outside(image))


def _outside(image: Any) -> Any:
    """An image as anybody else may see it."""
    if isinstance(image, Encoded):
        image = of_file(image.pixels())
    if isinstance(image, Picture):
        return image.image()
    return functional.pixels_to_tensor(image.pixels) if isinstance(image, _AlmostTensor) else image
