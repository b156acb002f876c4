"""LightningModules as models: their own steps, optimizer and logging, without Lightning's Trainer."""

from seamline.frameworks.torch.lightning.module import check, drives, may_drive, prepared
from seamline.frameworks.torch.lightning.optimizers import configured
from seamline.frameworks.torch.lightning.steps import TrainingStep, ValidationStep
from seamline.frameworks.torch.lightning.trainer import StandIn

__all__ = ["StandIn", "TrainingStep", "ValidationStep", "check", "configured", "drives", "may_drive", "prepared"]
