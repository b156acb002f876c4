"""The frozen part of a model: found, checked, made fast, and computed once for each row where that can be."""

from seamline.frameworks.torch.frozen.part import FrozenPart
from seamline.frameworks.torch.frozen.pipeline import repeatable

__all__ = ["FrozenPart", "repeatable"]
