"""What runs on each worker, whatever the engine and the framework."""

from __future__ import annotations

from seamline.core import registry
from seamline.core.fault import strike
from seamline.core.framework import Feed, Job, Outcome, Part, Recipe
from seamline.core.shards import Shard, met
from seamline.core.startup import without_collecting
from seamline.core.world import World


def fit(world: World, feed: Feed, *, framework: str, recipe: Recipe, job: Job) -> Outcome:
    strike(job.faults, "start", world.rank, 0, job.attempt)
    with without_collecting():
        library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        strike(job.faults, "join", world.rank, 0, job.attempt)
        validation = feed.validation and met(feed.validation, peers)
        return library.fit(recipe, Feed(met(feed.train, peers), validation), job, peers)


def evaluate(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> dict[str, float]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        return library.evaluate(recipe, met(shard, peers), peers)


def predict(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> list[Part]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        return library.predict(recipe, met(shard, peers), peers)
