"""A cluster, or several processes of one machine: train, evaluate and predict with the program you have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from seamline.core.checkpoint import CheckpointPolicy
from seamline.core.retry import RetryPolicy
from seamline.core.tuning import Tuning
from seamline.orca.context import OrcaContext, init_orca_context, stop_orca_context
from seamline.orca.estimator import Estimator
from seamline.orca.handing_on import latest_checkpoint

if TYPE_CHECKING:
    from seamline.orca.xshards import XShards

__all__ = [
    "CheckpointPolicy",
    "Estimator",
    "OrcaContext",
    "RetryPolicy",
    "Tuning",
    "XShards",
    "init_orca_context",
    "latest_checkpoint",
    "stop_orca_context",
]

_LATE = {"XShards": "seamline.orca.xshards"}
"""Names that bring pandas along, imported when somebody asks for them."""


def __getattr__(name: str) -> Any:
    if name in _LATE:
        return getattr(import_module(_LATE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
