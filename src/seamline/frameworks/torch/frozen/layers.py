"""What is known of torch's own layers."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm


def follows_mode(module: nn.Module) -> bool:
    """Whether a layer of torch's own computes otherwise in training than in evaluation."""
    if isinstance(module, (_BatchNorm, _InstanceNorm)):
        return module.track_running_stats
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)):
        return module.dropout > 0
    return isinstance(module, nn.RReLU)


def is_torchs_own(module: nn.Module) -> bool:
    """A layer that torch brings along and that is no container."""
    return type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Sequential)
