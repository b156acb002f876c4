"""Python objects in shards, on whichever engine is active."""

from seamline.orca.xshards.shards import XShards

__all__ = ["XShards"]
