"""Workers as processes of this machine."""

from seamline.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
