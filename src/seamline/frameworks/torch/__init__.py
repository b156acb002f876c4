"""PyTorch: one training loop for every engine, every kind of data, every way to synchronise."""

from seamline.frameworks.torch.framework import TorchFramework

__all__ = ["TorchFramework"]
