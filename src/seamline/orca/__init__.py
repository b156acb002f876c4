"""A cluster, or several processes of one machine: train, evaluate and predict with the program you have."""

from seamline.core.checkpoint import CheckpointPolicy
from seamline.core.tuning import Tuning
from seamline.orca.estimator import Estimator

__all__ = ["CheckpointPolicy", "Estimator", "Tuning"]
