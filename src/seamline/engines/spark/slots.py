"""What a Spark session offers: room for workers, retries, and the address where its executors look for the driver."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from seamline.core.errors import SeamlineError

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_EVERY_S = 0.05


def is_local(context: SparkContext) -> bool:
    """Whether the executor is a part of the driver's JVM."""
    return str(context.master).startswith("local") and not str(context.master).startswith("local-cluster")


def retries_tasks(context: SparkContext) -> bool:
    """Whether Spark runs a lost task again; in local mode only if the master says how often."""
    if is_local(context):
        return "," in str(context.master)
    return int(context.getConf().get("spark.task.maxFailures", "4") or 4) > 1


def total(context: SparkContext, profile: Any = None) -> int:
    """How many tasks run at the same time on the executors that there are now."""
    spark: Any = context._jsc.sc()
    chosen = spark.resourceProfileManager().defaultResourceProfile() if profile is None else profile
    return int(spark.maxNumConcurrentTasks(chosen))


def announce(context: SparkContext, profile: Any) -> None:
    """Tell Spark of a resource profile, so that its slots can be counted before a job uses it."""
    spark: Any = context._jsc.sc()
    spark.resourceProfileManager().addResourceProfile(profile)


def wait_for(context: SparkContext, size: int, profile: Any, within_s: float) -> None:
    """Return when ``size`` tasks can start together; ``SeamlineError`` says what there is instead.

    Executors take a while to come and tasks to go, so there is some patience.
    """
    _refuse_dynamic_allocation(context)
    deadline = time.monotonic() + within_s
    while True:
        there = total(context, profile)
        free = there - _running(context)
        if free >= size:
            return
        if time.monotonic() > deadline or (is_local(context) and there < size):
            raise SeamlineError(f"{_count(size)} asked, but {_state(free, there)}; {_advice(context, there < size)}")
        time.sleep(_LOOK_EVERY_S)


def addresses(context: SparkContext) -> tuple[str, str]:
    """Where the driver listens, and what the executors call that place."""
    conf = context.getConf()
    host = str(conf.get("spark.driver.host", "127.0.0.1"))
    bind = str(conf.get("spark.driver.bindAddress", host))
    everywhere = bind in ("0.0.0.0", "::", "")
    return (host if everywhere else bind), host


def _running(context: SparkContext) -> int:
    tracker: Any = context._jsc.sc().statusTracker()
    return sum(int(executor.numRunningTasks()) for executor in tracker.getExecutorInfos())


def _refuse_dynamic_allocation(context: SparkContext) -> None:
    on = str(context.getConf().get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    if on and not is_local(context):
        raise SeamlineError(
            "the Spark session allocates executors dynamically, and workers that meet need them all at once; "
            "set spark.dynamicAllocation.enabled=false and spark.executor.instances to the number of workers"
        )


def _count(size: int) -> str:
    return "1 worker" if size == 1 else f"{size} workers"


def _state(free: int, there: int) -> str:
    slots = "1 free slot" if free == 1 else f"{max(free, 0)} free slots"
    return f"the cluster has {slots}" + (f" (of {there}: other jobs are running)" if free < there else "")


def _advice(context: SparkContext, too_small: bool) -> str:
    if not too_small:
        return "wait for the other jobs, or use fewer workers"
    if is_local(context):
        return "use fewer workers, or start Spark with more, as in local[8]"
    return "use fewer workers, or give Spark more executors or cores (spark.executor.instances, spark.cores.max)"
