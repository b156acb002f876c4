"""Transforms that do something with a probability, and else nothing."""

from __future__ import annotations

from seamline.nano.torch.vision import randomness
from seamline.nano.torch.vision.pixels import Pixels, Work
from seamline.nano.torch.vision.transforms.transform import RandomTransform, unchanged


class Chance(RandomTransform):
    """With probability ``p`` the change, else the picture as it is."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ValueError(f"`0 <= p <= 1` must hold, but got {p}")
        self.p = p

    @property
    def deterministic(self) -> bool:
        """With 0 or 1 there is only one answer."""
        return self.p in (0, 1)

    def plan(self, height: int, width: int) -> Work:
        return self.certain(height, width) if randomness.chance(self.p) else unchanged

    def certain(self, height: int, width: int) -> Work:
        """What is done if it is done."""
        return self.change

    def change(self, pixels: Pixels) -> Pixels:
        raise NotImplementedError(f"{type(self).__name__} says neither what it does nor how it chooses")
