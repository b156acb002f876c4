"""Workers on the executors of a Spark cluster."""

from seamline.engines.spark.cluster import StandaloneCluster
from seamline.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine", "StandaloneCluster"]
