"""Taking a rectangle out of a tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from seamline.nano.torch.vision import randomness
from seamline.nano.torch.vision.transforms import functional
from seamline.nano.torch.vision.transforms.transform import Transform


class RandomErasing(Transform):
    """With probability ``p`` a rectangle of a tensor becomes ``value``, or noise if that is ``"random"``."""

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
        inplace: bool = False,
    ) -> None:
        if isinstance(value, str) and value != "random":
            raise ValueError(f'value is a number, one for each channel, or "random", but got {value!r}')
        if not 0 <= scale[0] <= scale[1] <= 1:
            raise ValueError(f"`0 <= low <= high <= 1` must hold for scale, but got {scale}")
        if not 0 <= p <= 1:
            raise ValueError(f"`0 <= p <= 1` must hold, but got {p}")
        self.p = p
        self.scale = scale
        self.ratio = ratio
        self.value = value
        self.inplace = inplace

    @property
    def deterministic(self) -> bool:
        return self.p == 0

    @staticmethod
    def get_params(
        img: torch.Tensor,
        scale: tuple[float, float],
        ratio: tuple[float, float],
        value: Sequence[float] | None = None,
    ) -> tuple[int, int, int, int, torch.Tensor]:
        """Top, left, height and width of the rectangle, and what goes there; all of the image if none was found."""
        channels, rows, columns = (int(side) for side in img.shape[-3:])
        log_ratio = torch.log(torch.tensor(ratio)).tolist()
        for _ in range(10):
            area = rows * columns * randomness.uniform(scale[0], scale[1])
            shape = math.exp(randomness.uniform(log_ratio[0], log_ratio[1]))
            height, width = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if not (height < rows and width < columns):
                continue
            if value is None:
                new = randomness.normal((channels, height, width), torch.float32)
            else:
                new = torch.tensor(value, dtype=torch.float32)[:, None, None]
            top = randomness.integer(0, rows - height + 1)
            return top, randomness.integer(0, columns - width + 1), height, width, new
        return 0, 0, rows, columns, img

    def __call__(self, img: torch.Tensor) -> Any:
        if not isinstance(img, torch.Tensor):
            raise TypeError(f"RandomErasing works on tensors, but got {type(img).__name__}; put ToTensor before it")
        if not randomness.chance(self.p):
            return img
        place = self.get_params(img, self.scale, self.ratio, self._values(int(img.shape[-3])))
        return functional.erase(img, *place, inplace=self.inplace)

    def _values(self, channels: int) -> list[float] | None:
        if isinstance(self.value, str):
            return None
        values = [float(self.value)] if isinstance(self.value, (int, float)) else [float(one) for one in self.value]
        if len(values) not in (1, channels):
            raise ValueError(f"value has {len(values)} numbers, but the image has {channels} channels")
        return values
