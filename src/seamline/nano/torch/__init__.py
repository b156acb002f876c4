"""PyTorch on this machine."""

from seamline.nano.torch.inference import InferenceOptimizer

__all__ = ["InferenceOptimizer"]
