"""A cluster, or several processes of one machine: train, evaluate and predict with the program you have."""

from seamline.core.checkpoint import CheckpointPolicy
from seamline.core.tuning import Tuning
from seamline.orca.context import OrcaContext, init_orca_context, stop_orca_context
from seamline.orca.estimator import Estimator

__all__ = ["CheckpointPolicy", "Estimator", "OrcaContext", "Tuning", "init_orca_context", "stop_orca_context"]
