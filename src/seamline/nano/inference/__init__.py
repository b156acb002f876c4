"""Finding the fastest way to serve a model, proving that it is right, and serving streams of requests."""

from seamline.nano.inference.multi_instance import MultiInstance, to_multi_instance
from seamline.nano.inference.pipeline import Pipeline
from seamline.nano.inference.report import Report

__all__ = ["MultiInstance", "Pipeline", "Report", "to_multi_instance"]
