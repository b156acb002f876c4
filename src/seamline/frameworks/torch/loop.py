"""The one training loop of the project for torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seamline.core import rng, tree
from seamline.core.errors import SeamlineError
from seamline.core.framework import Feed, Job, Outcome, Recipe
from seamline.core.run import Run
from seamline.core.shards import Batch, Shard
from seamline.core.startup import without_collecting
from seamline.frameworks.torch.autocast import autocast
from seamline.frameworks.torch.build import Built, build
from seamline.frameworks.torch.losses import WeighedLoss
from seamline.frameworks.torch.replica import TorchReplica
from seamline.frameworks.torch.scoring import evaluate
from seamline.frameworks.torch.tensors import Placement, call, pieces
from seamline.frameworks.torch.trainee import TorchTrainee
from seamline.frameworks.torch.world import TorchWorld


def fit(recipe: Recipe, feed: Feed, job: Job, world: TorchWorld) -> Outcome:
    """Train, in step with the other workers; every worker ends with the same weights."""
    with random_numbers_restored():
        seed_everything(rng.derive(job.seed))
        with without_collecting():
            built = build(recipe, world.device)
            trainee = TorchTrainee(built)
            if recipe.start is not None:
                trainee.load(recipe.start)
            replica = TorchReplica(built.model, world)
            recipe.sync.attach(replica)
        step = TrainingStep(recipe, built, replica, world)
        run = Run(job, trainee, world, feed.train.steps)
        for epoch in run.epochs():
            built.model.train()
            for batch in in_agreement(feed.train, epoch, run.epoch_step, world):
                seed_everything(rng.derive(job.seed, run.step, world.rank))
                if not run.step_done(batch, step(batch)):
                    break
            logs = run.summarise({"lr": built.optimizer.param_groups[0]["lr"], **validate(recipe, built, feed, world)})
            step.end_epoch(logs)
            run.epoch_done()
        return run.outcome()


class TrainingStep:
    """One batch: forward, backward, clip, update."""

    def __init__(self, recipe: Recipe, built: Built, replica: TorchReplica, world: TorchWorld) -> None:
        self._tuning = recipe.tuning
        self._per_step = recipe.scheduler_every == "step"
        self._built = built
        self._replica = replica
        self._world = world
        self._loss = WeighedLoss(built.loss)
        self._placement = Placement.of(built.model, world.device, channels_last=recipe.tuning.channels_last)

    def __call__(self, batch: Batch) -> Any:
        """Update the weights; returns this worker's mean loss, on the device if that is not the CPU."""
        inputs, targets = self._placement.put(batch.inputs), self._placement.put(batch.targets)
        self._built.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(batch, inputs, targets)
        self._clip()
        self._built.optimizer.step()
        if self._per_step and self._built.scheduler is not None:
            self._built.scheduler.step()
        return float(loss) if self._world.device.type == "cpu" else loss.detach()

    def end_epoch(self, logs: dict[str, float]) -> None:
        scheduler = self._built.scheduler
        if scheduler is None or self._per_step:
            return
        if isinstance(scheduler, ReduceLROnPlateau):
            scheduler.step(logs.get("val_loss", logs["loss"]))
        else:
            scheduler.step()

    def _backward(self, batch: Batch, inputs: Any, targets: Any) -> torch.Tensor:
        here = self._loss.count(targets, batch.rows)
        everywhere = self._world.sum(here) if self._loss.counts_unevenly(targets) else float(batch.batch_rows)
        mean = torch.zeros((), device=self._world.device)
        parts = list(pieces(inputs, targets, self._tuning.accumulate))
        for number, (some_inputs, some_targets, part) in enumerate(parts, start=1):
            last = number == len(parts)
            counted = self._loss.count(some_targets, batch.rows * part)
            with contextlib.nullcontext() if last else self._replica.holding_back():
                with autocast(self._tuning, self._world.device):
                    outputs = call(self._replica.model, some_inputs)
                    # Rows that count for nothing still run through the model, to stay in step with the others.
                    loss = self._loss(outputs, some_targets) if counted else _nothing(outputs)
                (loss * self._weight(counted, everywhere)).backward()  # type: ignore[no-untyped-call]
            mean = mean + loss.detach() * (counted / here if counted else 0.0)
        return mean

    def _weight(self, counted: float, everywhere: float) -> float:
        """Averaging over workers divides by their number; a row must weigh what it does on one worker."""
        if self._loss.reduction == "sum":
            return float(self._world.size)
        return counted * self._world.size / everywhere if everywhere else 0.0

    def _clip(self) -> None:
        parameters = [p for p in self._built.model.parameters() if p.grad is not None]
        if self._tuning.clip_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self._tuning.clip_value)
        if self._tuning.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self._tuning.clip_norm)


def _nothing(outputs: Any) -> torch.Tensor:
    total: torch.Tensor = sum(leaf.sum() for leaf in tree.leaves(outputs))
    return total * 0.0


def validate(recipe: Recipe, built: Built, feed: Feed, world: TorchWorld) -> dict[str, float]:
    if feed.validation is None:
        return {}
    scores = evaluate(recipe, built.model, built.loss, feed.validation, world)
    return {f"val_{name}": value for name, value in scores.items()}


def in_agreement(shard: Shard, epoch: int, first_step: int, world: TorchWorld) -> Iterator[Batch]:
    """A shard's batches; where only the end of the data tells, all workers make sure that they see the same."""
    batches = shard.batches(epoch, first_step)
    if shard.steps is not None or world.size == 1:
        yield from batches
        return
    while True:
        batch = next(batches, None)
        left = int(world.sum(batch is not None))
        if left == 0:
            return
        if left < world.size or batch is None:
            raise SeamlineError(
                f"the data ended on {world.size - left} of {world.size} workers while others had more; "
                "a stream must give the same rows on every worker, so seed it and do not shard it yourself"
            )
        yield batch


def seed_everything(seed: int) -> None:
    rng.seed_python_and_numpy(seed)
    torch.manual_seed(seed >> 1)


@contextlib.contextmanager
def random_numbers_restored() -> Iterator[None]:
    """Leave the random numbers of a notebook as they were."""
    with rng.restored(), torch.random.fork_rng():
        yield
