"""Ways to train with less arithmetic or less memory; each stands alone and works in a loop of your own.

The Lightning callbacks are imported when they are asked for, since they need Lightning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamline.core.errors import UnavailableError
from seamline.nano.torch.algorithms.accumulation import accumulate_to
from seamline.nano.torch.algorithms.checkpointing import Checkpointing, checkpoint_gradients
from seamline.nano.torch.algorithms.selective_backprop import SelectiveBackprop, select
from seamline.nano.torch.algorithms.sparse_adam import SparseAdam

if TYPE_CHECKING:
    from seamline.nano.torch.algorithms.callbacks import AccumulateTo, SelectiveBackpropCallback

__all__ = [
    "AccumulateTo",
    "Checkpointing",
    "SelectiveBackprop",
    "SelectiveBackpropCallback",
    "SparseAdam",
    "accumulate_to",
    "checkpoint_gradients",
    "select",
]

_CALLBACKS = ("AccumulateTo", "SelectiveBackpropCallback")


def __getattr__(name: str) -> Any:
    if name not in _CALLBACKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from seamline.nano.torch.algorithms import callbacks
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "lightning":
            raise
        raise UnavailableError.needs("lightning", extra="lightning") from error
    return getattr(callbacks, name)
