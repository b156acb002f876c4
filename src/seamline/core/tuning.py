"""How a model is computed: precision, layout and limits, as data.

bf16 means different code in each framework, so these are wishes that a framework turns into its own calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Precision = Literal["fp32", "bf16"]
FrozenPrecision = Literal["auto", "off", "fp32", "bf16", "int8"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Settings that change speed and memory, not what is learned.

    ``accumulate`` computes each batch in that many smaller pieces, to save memory; every row keeps its
    weight, so the numbers stay those of the whole batch. ``clip_norm`` and ``clip_value`` bound the
    gradients after they were averaged over the workers.

    ``ema`` keeps an exponential moving average of the weights, ``ema * average + (1 - ema) * weights`` after every step
    from the second on, and that is the model which validates, is evaluated, predicts and is saved; ``fit`` again goes
    on from the weights behind it. Buffers, such as the running statistics of batch normalisation, are not averaged:
    they are those of the model in training.

    ``frozen`` is how the frozen beginning of a model is computed: ``"fp32"`` to the bit as ever, ``"bf16"`` and
    ``"int8"`` in the fastest way of that precision which was checked, ``"off"`` without a look. ``"auto"`` is fp32, and
    with ``precision="bf16"`` whatever is fastest. ``cache_frozen`` keeps each row's features from the first epoch on:
    ``"auto"`` if that gives the same bits and saves time, ``True`` also if it saves none.
    """

    precision: Precision = "fp32"
    channels_last: bool = False
    accumulate: int = 1
    clip_norm: float | None = None
    clip_value: float | None = None
    ema: float | None = None
    device: str = "auto"
    frozen: FrozenPrecision = "auto"
    cache_frozen: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.precision not in ("fp32", "bf16"):
            raise ValueError(f"no precision {self.precision!r}; there are 'fp32' and 'bf16'")
        if self.accumulate < 1:
            raise ValueError(f"`accumulate >= 1` must hold, but got accumulate={self.accumulate}")
        if self.frozen not in get_args(FrozenPrecision):
            raise ValueError(f"no frozen={self.frozen!r}; there are {', '.join(map(repr, get_args(FrozenPrecision)))}")
        if self.cache_frozen not in (True, False, "auto"):
            raise ValueError(f"cache_frozen is True, False or 'auto', but got {self.cache_frozen!r}")
        if self.ema is not None and not 0 < self.ema < 1:
            raise ValueError(f"`0 < ema < 1` must hold, but got ema={self.ema}")
        for name in ("clip_norm", "clip_value"):
            bound = getattr(self, name)
            if bound is not None and bound <= 0:
                raise ValueError(f"`{name} > 0` must hold, but got {name}={bound}")
