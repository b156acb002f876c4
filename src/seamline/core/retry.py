"""Starting a run again after a loss, as often as somebody is willing to pay for."""

from __future__ import annotations

from dataclasses import dataclass

from seamline.core.errors import WorkerLostError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a run is started again, from its newest checkpoint, after workers were lost.

    ``failures`` are workers that were killed or crashed; ``preemptions`` are machines that somebody took away, which is
    no fault of the program, so there may be many. Before each start the run waits, twice as long as the last time,
    from ``wait_s`` up to ``wait_at_most_s``. What a program raises is never tried again: it would raise again.
    """

    failures: int = 3
    preemptions: int = 16
    wait_s: float = 0.5
    wait_at_most_s: float = 30.0

    def __post_init__(self) -> None:
        for name in ("failures", "preemptions", "wait_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name} >= 0` must hold, but got {name}={getattr(self, name)}")

    @classmethod
    def of(cls, wish: RetryPolicy | int | None) -> RetryPolicy:
        """A policy, a number of failures, or the usual policy."""
        if isinstance(wish, RetryPolicy):
            return wish
        return cls() if wish is None else cls(failures=wish, preemptions=wish)


class Budget:
    """What is left of a policy in one run."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = self._preemptions = 0

    @property
    def spent(self) -> int:
        """How many losses there were."""
        return self._failures + self._preemptions

    def spend(self, loss: WorkerLostError) -> float | None:
        """The seconds to wait before the next start, or ``None`` when there is to be none."""
        if loss.preempted:
            self._preemptions += 1
        else:
            self._failures += 1
        if self._failures > self._policy.failures or self._preemptions > self._policy.preemptions:
            return None
        return float(min(self._policy.wait_at_most_s, self._policy.wait_s * 2 ** (self.spent - 1)))
