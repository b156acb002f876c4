"""What a LightningModule asks its trainer for."""

from __future__ import annotations

from typing import Any

from seamline.core.framework import Job
from seamline.core.run import Run
from seamline.core.shards import Shard
from seamline.frameworks.torch.world import TorchWorld


class StandIn:
    """``self.trainer`` where none of Lightning's runs: it knows the run, and says so of what it does not know."""

    barebones = False
    logger = None
    loggers: tuple[Any, ...] = ()
    sanity_checking = False

    def __init__(self, world: TorchWorld, job: Job | None = None, shard: Shard | None = None) -> None:
        self.run: Run | None = None
        self._world = world
        self._job = job
        self._shard = shard

    @property
    def current_epoch(self) -> int:
        return self.run.epoch if self.run is not None else 0

    @property
    def global_step(self) -> int:
        return self.run.step if self.run is not None else 0

    @property
    def max_epochs(self) -> int | None:
        return None if self._job is None else self._job.first_epoch + self._job.epochs

    @property
    def num_training_batches(self) -> float:
        steps = None if self._shard is None else self._shard.steps
        return float("inf") if steps is None else steps

    @property
    def estimated_stepping_batches(self) -> float:
        """The steps of the whole run, for schedulers that want to know."""
        if self._job is None:
            return float("inf")
        return min(self.num_training_batches * self._job.epochs, self._job.max_steps or float("inf"))

    @property
    def global_rank(self) -> int:
        return self._world.rank

    @property
    def world_size(self) -> int:
        return self._world.size

    @property
    def is_global_zero(self) -> bool:
        return self._world.rank == 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"self.trainer.{name} is of Lightning's Trainer, which does not run here; there are current_epoch, "
            "global_step, max_epochs, num_training_batches, estimated_stepping_batches, global_rank, world_size and "
            "is_global_zero"
        )
