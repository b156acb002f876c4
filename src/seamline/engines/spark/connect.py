"""A client of Spark Connect: there is no JVM in this process, and jobs are made of data frames."""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seamline.core.collection import Collection
from seamline.core.engine import Value
from seamline.core.errors import SeamlineError
from seamline.engines.spark import frames, rows, slots
from seamline.engines.spark.boot import Entry, remote_frame
from seamline.engines.spark.frames import FrameCollection
from seamline.engines.spark.held import HeldBroadcast, Holder
from seamline.engines.spark.job import Job
from seamline.engines.spark.keeper import Orders
from seamline.engines.spark.rows import COLUMNS
from seamline.engines.spark.session import LOOPBACK, quiet
from seamline.engines.spark.task import TaskOrders, Work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OLDEST = (4, 1)
"""Since then rows can be sent to a partition by its number."""
_ANY_PORT = 15002
"""No packet is sent there: the system only says through which interface it would go."""


@dataclass(frozen=True, slots=True)
class _Profile:
    """Tasks with several cores, in Spark's words."""

    cores: int
    inner: Any


class ConnectAccess:
    """What the server tells, and what it can be asked to run.

    Items, functions and broadcast values stay in this program until a task asks for them, because what goes through
    the server is limited in size and is kept there.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        if tuple(int(part) for part in self.version.split(".")[:2]) < _OLDEST:
            raise SeamlineError(
                f"the Spark Connect server is of Spark {self.version}, and Seamline needs 4.1 or later there; "
                "use a newer one, or a session whose driver is this program"
            )
        self._settings: dict[str, str | None] = {}
        self._holder: Holder | None = None

    @property
    def here(self) -> bool:
        return slots.is_local(self.setting) and self.addresses[0] == LOOPBACK

    @property
    def version(self) -> str:
        return str(self._session.version)

    @property
    def addresses(self) -> tuple[str, str]:
        """This machine's address on the way to the server; its executors are taken to be there too."""
        host = str(self._session.client.host)
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, _ANY_PORT))
                ours = str(probe.getsockname()[0])
        except OSError as error:
            raise SeamlineError(f"there is no way from here to the Spark Connect server on {host} ({error})") from error
        return ours, ours

    def setting(self, key: str, default: str) -> str:
        if key not in self._settings:
            self._settings[key] = self._session.conf.get(key, None)
        return self._settings[key] or default

    def executors(self) -> int:
        if slots.is_local(self.setting):
            return 1
        cores = int(self.setting("spark.executor.cores", "0"))
        if cores:
            return max(1, self.slots() * self._cores_of_a_task // cores)
        return int(self.setting("spark.executor.instances", "1"))

    def slots(self, profile: _Profile | None = None) -> int:
        """What Spark would cut a range into: the cores of its executors, unless somebody has set another number."""
        told = re.search(r"splits=(?:Some\()?(\d+)", self._session.range(1)._explain_string())
        if told is None:
            raise SeamlineError("the Spark Connect server does not say how many tasks it runs at a time")
        return int(told[1]) // (profile.cores if profile else self._cores_of_a_task)

    def busy(self) -> int:
        """The server does not say; where others are at work, Spark lets a run wait for them."""
        return 0

    def profile(self, cores: int) -> _Profile:
        from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

        builder: Any = ResourceProfileBuilder()
        made = builder.require(TaskResourceRequests().cpus(cores)).build
        if made.id is None:  # asking makes it known to the server, which only the session's own thread can
            raise SeamlineError(f"the Spark Connect server does not know task_cores={cores}; leave it out")
        return _Profile(cores, made)

    def gang(self, orders: Orders, broadcasts: Sequence[Any], profile: _Profile | None) -> Job:
        how = {"barrier": True, "profile": profile and profile.inner}
        return self._start(self._tasks(orders.size, rows.keep_worker, orders, **how))

    def map(self, orders: TaskOrders, work: Work, numbers: list[int]) -> Job:
        return self._start(self._tasks(len(numbers), rows.map_number, (orders, numbers)))

    def exchange(self, orders: TaskOrders, work: Work) -> Job:
        given = self._tasks(orders.size, rows.give_blocks, orders).repartitionById(orders.size, "shard")
        with quiet():
            return self._start(given.mapInArrow(remote_frame(rows.take_blocks, orders), COLUMNS))

    def share(self, value: Value) -> HeldBroadcast[Value]:
        if self._holder is None:
            self._holder = Holder(*self.addresses)
        return self._holder.put(value)

    def collection(self, values: Sequence[Any]) -> FrameCollection:
        return FrameCollection.of(self._session, values)

    def adopt(self, frame: DataFrame) -> FrameCollection:
        return frames.adopted(frame)

    def native(self, tables: Collection, schema: Any) -> DataFrame:
        return frames.native(self._session, tables, schema)

    def close(self) -> None:
        if self._holder is not None:
            self._holder.close()
            self._holder = None

    @property
    def _cores_of_a_task(self) -> int:
        return int(self.setting("spark.task.cpus", "1"))

    def _tasks(self, count: int, entry: Entry, orders: object, **how: Any) -> Any:
        """A frame whose partitions are computed by tasks of ours, each of which knows its number."""
        with quiet():
            return self._session.range(0, count, 1, count).mapInArrow(remote_frame(entry, orders), COLUMNS, **how)

    def _start(self, frame: Any) -> Job:
        return Job(_Tag(self._session), lambda: [row["said"] for row in frame.collect()])


class _Tag:
    """A tag that the operations of one thread have."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._name = f"seamline-{secrets.token_hex(8)}"

    def thread(self, target: Callable[[], None]) -> threading.Thread:
        from pyspark import InheritableThread

        return InheritableThread(target=target, session=self._session)

    def put(self) -> None:
        self._session.addTag(self._name)

    def cancel(self) -> None:
        """In a thread of its own: a server that is gone is asked for many minutes."""
        threading.Thread(target=self._interrupt, daemon=True, name="seamline-cancel").start()

    def _interrupt(self) -> None:
        from pyspark.errors import PySparkException

        with contextlib.suppress(PySparkException):  # nothing is left that could be cancelled
            self._session.interruptTag(self._name)

    def session_lost(self, error: Exception) -> str | None:
        lost = ("UNAVAILABLE", "SESSION_NOT_FOUND", "SESSION_CLOSED", "Connection refused")
        if any(word in str(error) for word in lost):
            return "the Spark Connect server has ended or cannot be reached; start it and this program again"
        return None
