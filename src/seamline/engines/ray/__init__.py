"""Workers as actors of a Ray cluster, and tasks as its tasks."""

from seamline.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
