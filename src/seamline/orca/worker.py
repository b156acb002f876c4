"""What runs on each worker, whatever the engine and the framework."""

from __future__ import annotations

from seamline.core import registry
from seamline.core.framework import Feed, Job, Outcome, Part, Recipe
from seamline.core.shards import Shard
from seamline.core.startup import without_collecting
from seamline.core.world import World


def fit(world: World, feed: Feed, *, framework: str, recipe: Recipe, job: Job) -> Outcome:
    with without_collecting():
        library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        return library.fit(recipe, feed, job, peers)


def evaluate(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> dict[str, float]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        return library.evaluate(recipe, shard, peers)


def predict(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> list[Part]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning) as peers:
        return library.predict(recipe, shard, peers)
