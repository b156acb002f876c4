"""What the engine needs of a Spark session, of whichever kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from seamline.core.collection import Collection
from seamline.core.engine import Broadcast, Value
from seamline.engines.spark.classic import ClassicAccess
from seamline.engines.spark.connect import ConnectAccess
from seamline.engines.spark.job import Job
from seamline.engines.spark.keeper import Orders
from seamline.engines.spark.session import pyspark_session
from seamline.engines.spark.task import TaskOrders, Work


class Access(Protocol):
    """A session's verbs for jobs, room, addresses, and values and shards that lie on its executors."""

    @property
    def here(self) -> bool:
        """Whether its tasks run on this machine, which they then share evenly."""
        ...

    @property
    def version(self) -> str: ...

    @property
    def addresses(self) -> tuple[str, str]:
        """Where this program listens, and what the executors call that place."""
        ...

    def setting(self, key: str, default: str) -> str:
        """What Spark was started with."""
        ...

    def executors(self) -> int:
        """How many there are now."""
        ...

    def slots(self, profile: Any = None) -> int:
        """How many tasks run at the same time on the executors that there are now."""
        ...

    def busy(self) -> int:
        """How many of the slots are known to be taken."""
        ...

    def profile(self, cores: int) -> Any:
        """Tasks with so many cores each, for ``slots`` and ``gang``."""
        ...

    def gang(self, orders: Orders, broadcasts: Sequence[Any], profile: Any) -> Job:
        """Start a keeper for each worker, all together."""
        ...

    def map(self, orders: TaskOrders, work: Work, numbers: list[int]) -> Job:
        """Start a task for each of the items with these numbers."""
        ...

    def exchange(self, orders: TaskOrders, work: Work) -> Job:
        """Start a shuffle with a producer and a consumer for each item."""
        ...

    def share(self, value: Value) -> Broadcast[Value]: ...

    def collection(self, values: Sequence[Any]) -> Collection: ...

    def adopt(self, frame: Any) -> Collection:
        """The partitions of a DataFrame as Arrow tables."""
        ...

    def native(self, tables: Collection, schema: Any) -> Any:
        """A DataFrame whose partitions are these Arrow tables; they are brought to Spark if they are elsewhere."""
        ...

    def close(self) -> None:
        """Let go of what was held for the executors; the session stays."""
        ...


def access_to(session: Any) -> Access:
    """The verbs of this session: that of this process's own JVM, or a client of Spark Connect."""
    return ClassicAccess(session) if isinstance(session, pyspark_session()) else ConnectAccess(session)
