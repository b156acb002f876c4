"""What a transform is: a choice that depends on the size of the picture, and the work on its pixels that follows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from seamline.nano.torch.vision.encoded import Encoded
from seamline.nano.torch.vision.pixels import Pixels, Work, on_any, size_of


class Transform(ABC):
    """A callable that takes an image and gives one back; its attributes carry torchvision's names."""

    @property
    def deterministic(self) -> bool:
        """Whether the same image always gives the same answer."""
        return True

    @abstractmethod
    def __call__(self, image: Any) -> Any: ...

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in vars(self).items() if not name.startswith("_")]
        return f"{type(self).__name__}({', '.join(shown)})"


class PixelTransform(Transform):
    """A transform from pixels to pixels, for PIL images, arrays and tensors alike.

    All randomness is in ``plan``, which draws once for an image or for a batch of tensors.
    """

    @abstractmethod
    def plan(self, height: int, width: int) -> Work:
        """What to do with a picture of this size."""

    def read(self, encoded: Encoded) -> Pixels:
        """Do it while the file is decoded, if less has to be decoded then."""
        return self.plan(*encoded.size)(encoded.pixels())

    def __call__(self, image: Any) -> Any:
        return on_any(image, self.plan(*size_of(image)))


class RandomTransform(PixelTransform):
    """One that draws."""

    @property
    def deterministic(self) -> bool:
        return False


def unchanged(pixels: Pixels) -> Pixels:
    return pixels


def is_deterministic(transform: Any) -> bool:
    """Whether a transform is free of randomness, so that what it gives may be kept for later epochs.

    Functions and transforms that are not ours count as random, unless they have an attribute ``deterministic``.
    """
    return transform is None or bool(getattr(transform, "deterministic", False))
