"""Every step, every worker gets the average of all gradients."""

from __future__ import annotations

from dataclasses import dataclass

from seamline.core.sync import Replica


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Synchronous SGD: replicas start equal, see the same averages, and so stay equal."""

    name: str = "allreduce"

    def attach(self, replica: Replica) -> None:
        replica.share_start()
        replica.average_gradients()
