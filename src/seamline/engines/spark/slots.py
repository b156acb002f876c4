"""Whether a Spark session has room for workers that start together, and what to do where it has not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from seamline.core.errors import SeamlineError

if TYPE_CHECKING:
    from seamline.engines.spark.access import Access

_LOOK_EVERY_S = 0.05

Setting = Callable[[str, str], Any]
"""The value of a key that Spark was started with, or the default."""


def is_local(setting: Setting) -> bool:
    """Whether the executor is a part of the JVM of Spark's driver."""
    master = str(setting("spark.master", ""))
    return master.startswith("local") and not master.startswith("local-cluster")


def retries_tasks(setting: Setting) -> bool:
    """Whether Spark runs a lost task again; in local mode only if the master says how often."""
    if is_local(setting):
        return "," in str(setting("spark.master", ""))
    return int(setting("spark.task.maxFailures", "4") or 4) > 1


def wait_for(access: Access, size: int, profile: Any, within_s: float) -> None:
    """Return when ``size`` tasks can start together; ``SeamlineError`` says what there is instead.

    Executors take a while to come and tasks to go, so there is some patience.
    """
    local = is_local(access.setting)
    _refuse_dynamic_allocation(access, local)
    deadline = time.monotonic() + within_s
    while True:
        there = access.slots(profile)
        free = there - access.busy()
        if free >= size:
            return
        if time.monotonic() > deadline or (local and there < size):
            raise SeamlineError(f"{_count(size)} asked, but {_state(free, there)}; {_advice(local, there < size)}")
        time.sleep(_LOOK_EVERY_S)


def _refuse_dynamic_allocation(access: Access, local: bool) -> None:
    on = access.setting("spark.dynamicAllocation.enabled", "false").lower() == "true"
    if on and not local:
        raise SeamlineError(
            "the Spark session allocates executors dynamically, and workers that meet need them all at once; "
            "set spark.dynamicAllocation.enabled=false and spark.executor.instances to the number of workers"
        )


def _count(size: int) -> str:
    return "1 worker" if size == 1 else f"{size} workers"


def _state(free: int, there: int) -> str:
    slots = "1 free slot" if free == 1 else f"{max(free, 0)} free slots"
    return f"the cluster has {slots}" + (f" (of {there}: other jobs are running)" if free < there else "")


def _advice(local: bool, too_small: bool) -> str:
    if not too_small:
        return "wait for the other jobs, or use fewer workers"
    if local:
        return "use fewer workers, or start Spark with more, as in local[8]"
    return "use fewer workers, or give Spark more executors or cores (spark.executor.instances, spark.cores.max)"
