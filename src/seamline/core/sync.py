"""How replicas of a model agree: a policy, written in the few verbs that every framework offers."""

from __future__ import annotations

from typing import Protocol


class Replica(Protocol):
    """One worker's copy of the model, as a ``Sync`` sees it; each framework implements it once."""

    def share_start(self) -> None:
        """Give every worker the first worker's weights and buffers."""
        ...

    def average_gradients(self) -> None:
        """From now on, average gradients over all workers during each backward pass."""
        ...


class Sync(Protocol):
    """A way to keep replicas in agreement, whatever the framework."""

    name: str

    def attach(self, replica: Replica) -> None:
        """Arrange for the agreement, before the first step."""
        ...
