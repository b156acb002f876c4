"""Watching and steering a run; subclass ``Callback`` for your own."""

from seamline.core.events import Callback
from seamline.orca.callbacks.early_stopping import EarlyStopping
from seamline.orca.callbacks.logging import CSVLogger, TensorBoard
from seamline.orca.callbacks.model_checkpoint import ModelCheckpoint
from seamline.orca.callbacks.stop_on_nan import StopOnNaN
from seamline.orca.callbacks.tracking import MLflow, WandB

__all__ = [
    "CSVLogger",
    "Callback",
    "EarlyStopping",
    "MLflow",
    "ModelCheckpoint",
    "StopOnNaN",
    "TensorBoard",
    "WandB",
]
