"""Ways for replicas to agree, one file each."""

from seamline.sync.allreduce import AllReduce

__all__ = ["AllReduce"]
