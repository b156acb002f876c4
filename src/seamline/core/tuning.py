"""How a model is computed: precision, layout and limits, as data.

bf16 means different code in each framework, so these are wishes that a framework turns into its own calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Settings that change speed and memory, not what is learned.

    ``accumulate`` computes each batch in that many smaller pieces, to save memory; every row keeps its
    weight, so the numbers stay those of the whole batch. ``clip_norm`` and ``clip_value`` bound the
    gradients after they were averaged over the workers.
    """

    precision: Precision = "fp32"
    channels_last: bool = False
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"no precision {self.precision!r}; there are 'fp32' and 'bf16'")
        if self.accumulate < 1:
            raise ValueError(f"`accumulate >= 1` must hold, but got accumulate={self.accumulate}")
        for name in ("clip_norm", "clip_value"):
            bound = getattr(self, name)
            if bound is not None and bound <= 0:
                raise ValueError(f"`{name} > 0` must hold, but got {name}={bound}")
