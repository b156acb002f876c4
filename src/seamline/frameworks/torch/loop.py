"""The one training loop of the project for torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from seamline.core import rng
from seamline.core.clock import Clock
from seamline.core.errors import SeamlineError
from seamline.core.framework import Feed, Held, Job, Outcome, Recipe
from seamline.core.logical import LogicalShard
from seamline.core.run import Run
from seamline.core.shards import Batch, Shard
from seamline.core.startup import without_collecting
from seamline.frameworks.torch.build import Built, build
from seamline.frameworks.torch.frozen.acceleration import Acceleration
from seamline.frameworks.torch.lightning import StandIn, drives
from seamline.frameworks.torch.mode import TrainingMode
from seamline.frameworks.torch.objective import Objective, Supervised, objective_of
from seamline.frameworks.torch.randomness import random_numbers_restored, seed_everything
from seamline.frameworks.torch.replica import TorchReplica, share_buffers
from seamline.frameworks.torch.reproducible import ReproducibleStep, one_way_to_compute
from seamline.frameworks.torch.scoring import evaluate
from seamline.frameworks.torch.step import TrainingStep
from seamline.frameworks.torch.trainee import TorchTrainee
from seamline.frameworks.torch.world import TorchWorld

_ADVICE = "a stream must give the same rows on every worker, so do not shard it yourself"


def fit(recipe: Recipe, feed: Feed, job: Job, world: TorchWorld, held: Held) -> Outcome:
    """Train, in step with the other workers; every worker ends with the same weights.

    What is ``held`` from a call among peers that were lost goes on from there, and brings those along who are new.
    """
    reproducible = isinstance(feed.train, LogicalShard)
    with random_numbers_restored(), one_way_to_compute() if reproducible else contextlib.nullcontext():
        with without_collecting():
            if held.session is None:
                held.session = _begin(recipe, feed, job, world)
            session: Session = held.session
            built, objective, run = session.built, session.objective, session.run
            world = replace(world, clock=session.clock)
            if reproducible or not isinstance(objective, Supervised):
                # A frozen part that is computed in another way has other bits; a step of the user's may do anything.
                recipe = replace(recipe, tuning=replace(recipe.tuning, frozen="off"))
            run.meet(world, partial(validate, recipe, built, feed, world), world.clock)
            if world.generation:
                _catch_up(run, world)
            replica = TorchReplica(built.model, world, objective.called)
            step = _step(recipe, built, objective, replica, world, feed.train, job.seed)
        mode = TrainingMode(built.model)
        with Acceleration(step.probe, feed.train, job, world) as acceleration, objective.during(run):
            for epoch in run.epochs():
                mode.enter()
                step.refresh()
                objective.begin_epoch()
                batches = run.sampled(in_agreement(feed.train, epoch, run.epoch_step, world))
                for batch in run.watched(acceleration.batches(epoch, run.epoch_step, batches)):
                    if not run.step_done(batch, *step(batch, run.step)):
                        break
                run.close_epoch()
                logs = {"lr": built.optimizer.param_groups[0]["lr"], **run.validation(), **objective.end_epoch(world)}
                step.end_epoch(run.summarise(logs))
                run.epoch_done()
                replica.check_agreement()
        return run.outcome()


@dataclass(frozen=True, slots=True)
class Session:
    """What outlives the loss of a peer."""

    built: Built
    objective: Objective
    run: Run
    clock: Clock


def _begin(recipe: Recipe, feed: Feed, job: Job, world: TorchWorld) -> Session:
    seed_everything(rng.derive(job.seed))
    trainer = StandIn(world, job, feed.train)
    built = build(recipe, world.device, trainer)
    objective = objective_of(recipe, built, job, trainer)
    trainee = TorchTrainee(built)
    if recipe.start is not None:
        trainee.load(recipe.start)
    return Session(built, objective, Run(job, trainee, world, feed.train.steps), world.clock)


def _catch_up(run: Run, world: TorchWorld) -> None:
    """Bring every worker to where the one is that has come furthest."""
    reached = world.all_gather(run.reached)
    furthest = max((place for place in reached if place is not None), default=None)
    if furthest is None:
        return  # all begin
    source = reached.index(furthest)
    handed = world.share(run.hand_over() if world.rank == source else None, source)
    if reached[world.rank] != furthest and handed is not None:
        run.take_over(*handed)


def _step(
    recipe: Recipe,
    built: Built,
    objective: Objective,
    replica: TorchReplica,
    world: TorchWorld,
    shard: Shard,
    seed: int,
) -> TrainingStep:
    if isinstance(shard, LogicalShard):
        replica.share_start()
        replica.expect_agreement()
        return ReproducibleStep(recipe, built, objective, replica, world, shard, seed)
    recipe.sync.attach(replica)
    return TrainingStep(recipe, built, objective, replica, world, seed)


def validate(recipe: Recipe, built: Built, feed: Feed, world: TorchWorld) -> dict[str, float]:
    if feed.validation is None:
        return {}
    share_buffers(built.model, world)
    with contextlib.nullcontext() if built.average is None else built.average.in_place():
        scores = evaluate(recipe, built.model, built.loss, feed.validation, world)
    prefix = "" if drives(recipe, built.model) else "val_"  # a LightningModule has names of its own
    return {f"{prefix}{name}": value for name, value in scores.items()}


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
