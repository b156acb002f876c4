"""The one training loop of the project for torch."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.lr_scheduler import ReduceLROnPlateau

from seamline.core import rng, tree
from seamline.core.errors import SeamlineError
from seamline.core.framework import Feed, Job, Outcome, Recipe
from seamline.core.mean import Mean
from seamline.core.run import Run
from seamline.core.shards import Batch, Shard
from seamline.core.startup import without_collecting
from seamline.frameworks.torch.autocast import autocast
from seamline.frameworks.torch.build import Built, build
from seamline.frameworks.torch.frozen.acceleration import Acceleration, Probe
from seamline.frameworks.torch.losses import WeighedLoss
from seamline.frameworks.torch.mode import TrainingMode
from seamline.frameworks.torch.randomness import random_numbers_restored, seed_everything
from seamline.frameworks.torch.replica import TorchReplica, share_buffers
from seamline.frameworks.torch.scoring import evaluate
from seamline.frameworks.torch.tensors import Placement, call, pieces
from seamline.frameworks.torch.trainee import TorchTrainee
from seamline.frameworks.torch.world import TorchWorld

_ADVICE = "a stream must give the same rows on every worker, so do not shard it yourself"


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
        mode = TrainingMode(built.model)
        with Acceleration(step.probe, feed.train, job, world) as acceleration:
            for epoch in run.epochs():
                mode.enter()
                replica.refresh()
                batches = in_agreement(feed.train, epoch, run.epoch_step, world)
                for batch in run.watched(acceleration.batches(epoch, run.epoch_step, batches)):
                    seed_everything(rng.derive(job.seed, run.step, world.rank))
                    if not run.step_done(batch, step(batch)):
                        break
                logs = {"lr": built.optimizer.param_groups[0]["lr"], **validate(recipe, built, feed, world)}
                step.end_epoch(run.summarise(logs))
                run.epoch_done()
                replica.check_agreement()
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

    @property
    def probe(self) -> Probe:
        """How this step calls the model, for those who look for a part of it that could be faster."""

        def run(pair: Any) -> Any:
            with autocast(self._tuning, self._world.device):
                return call(self._built.model, pair[0])

        return Probe(self._built.model, run, self._placement.put, self._tuning)

    def __call__(self, batch: Batch) -> Mean:
        """Update the weights; returns this worker's part of the batch's mean loss."""
        inputs, targets = self._placement.put(batch.inputs), self._placement.put(batch.targets)
        self._built.optimizer.zero_grad(set_to_none=True)
        loss = self._backward(batch, inputs, targets)
        self._clip()
        self._built.optimizer.step()
        if self._per_step:
            self._advance_scheduler()
        return loss

    def end_epoch(self, logs: dict[str, float]) -> None:
        if not self._per_step:
            self._advance_scheduler(logs.get("val_loss", logs["loss"]))

    def _advance_scheduler(self, watched: float | None = None) -> None:
        scheduler = self._built.scheduler
        with warnings.catch_warnings():
            # An optimizer that has travelled to a worker is not the object that the scheduler has marked.
            warnings.filterwarnings("ignore", message="Seems like `optimizer.step.*has been overridden")
            if isinstance(scheduler, ReduceLROnPlateau):
                if watched is not None:
                    scheduler.step(watched)
            elif scheduler is not None:
                scheduler.step()

    def _backward(self, batch: Batch, inputs: Any, targets: Any) -> Mean:
        uneven = self._loss.counts_unevenly(targets)
        here = self._loss.count(targets, batch.rows)
        everywhere = self._world.sum(here) if uneven else float(batch.batch_rows)
        parts = list(pieces(inputs, targets, self._tuning.accumulate))
        tally = Mean()
        for number, (some_inputs, some_targets, share) in enumerate(parts, start=1):
            counted = self._loss.count(some_targets, batch.rows * share)
            with contextlib.nullcontext() if number == len(parts) else self._replica.holding_back():
                loss = self._forward(some_inputs, some_targets, counted)
                (loss * self._weight(counted, everywhere)).backward()  # type: ignore[no-untyped-call]
            if counted:
                tally = tally.plus(self._loss.tally(loss, counted))
        return tally

    def _forward(self, inputs: Any, targets: Any, counted: float) -> torch.Tensor:
        """The loss; rows that count for nothing run through the model too, to stay in step with the others."""

        def compute() -> torch.Tensor:
            with autocast(self._tuning, self._world.device), _normalising_as_learned(self._built.model, not counted):
                outputs = call(self._replica.model, inputs)
                return self._loss(outputs, targets) if counted else _nothing(outputs)

        return self._replica.once_checked(compute)

    def _weight(self, counted: float, everywhere: float) -> float:
        """Averaging over workers divides by their number; a row must weigh what it does on one worker."""
        if self._loss.sums:
            return float(self._world.size)
        return counted * self._world.size / everywhere if everywhere else 0.0

    def _clip(self) -> None:
        parameters = [p for p in self._built.model.parameters() if p.grad is not None]
        if self._tuning.clip_value is not None:
            torch.nn.utils.clip_grad_value_(parameters, self._tuning.clip_value)
        if self._tuning.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, self._tuning.clip_norm)


def _nothing(outputs: Any) -> torch.Tensor:
    """Zero, in a way that reaches every parameter."""
    sums = [torch.nan_to_num(leaf, 0.0, 0.0, 0.0).sum() for leaf in tree.leaves(outputs)]
    return torch.stack(sums).sum() * 0.0


@contextlib.contextmanager
def _normalising_as_learned(model: torch.nn.Module, needed: bool) -> Iterator[None]:
    """Let batch normalisation use its running statistics, for a row that must leave no trace."""
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.training] if needed else []
    for norm in norms:
        norm.eval()
    try:
        yield
    finally:
        for norm in norms:
            norm.train()


def validate(recipe: Recipe, built: Built, feed: Feed, world: TorchWorld) -> dict[str, float]:
    if feed.validation is None:
        return {}
    share_buffers(built.model, world)
    scores = evaluate(recipe, built.model, built.loss, feed.validation, world)
    return {f"val_{name}": value for name, value in scores.items()}


def in_agreement(shard: Shard, epoch: int, first_step: int, world: TorchWorld) -> Iterator[Batch]:
    """A shard's batches; where only the end of the data tells, all workers make sure that they see the same."""
    batches, step = shard.batches(epoch, first_step), first_step
    if shard.steps is not None or world.size == 1:
        yield from batches
        return
    while True:
        batch = next(batches, None)
        seen = world.all_gather(None if batch is None else (batch.batch_rows, batch.fingerprint))
        if batch is None or None in seen:
            ended = seen.count(None)
            if ended == world.size:
                return
            raise SeamlineError(f"the data ended on {ended} of {world.size} workers while others had more; {_ADVICE}")
        if len(set(seen)) > 1:
            raise SeamlineError(f"the workers read different rows in step {step + 1} of epoch {epoch + 1}; {_ADVICE}")
        yield batch
        step += 1
