"""What runs on each worker, whatever the engine and the framework."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from seamline.core import registry
from seamline.core.errors import PeerLostError
from seamline.core.fault import strike
from seamline.core.framework import Feed, Framework, Held, Job, Outcome, Part, Recipe
from seamline.core.pulse import Heart
from seamline.core.shards import Shard, met
from seamline.core.startup import without_collecting
from seamline.core.world import World

PATIENCE_S = 1800.0
"""How long peers that evaluate or predict may keep each other waiting."""


def fit(world: World, feed: Feed, *, framework: str, recipe: Recipe, job: Job) -> Outcome:
    with ExitStack() as stack:
        if job.timeout_s is not None and world.size > 1:
            job = replace(job, heart=stack.enter_context(Heart(world, job.timeout_s)))
        strike(job.faults, "start", world.rank, 0, job.attempt + world.generation)
        with without_collecting():
            library = registry.framework(framework)
        held = Held()
        while True:
            outcome = _fit_among(world, feed, library, recipe, job, held)
            if outcome is not None:
                return outcome
            gc.collect()  # hooks of the replica that was lost with its peers
            world.renew()  # where peers are replaced; else this is the end


def _fit_among(world: World, feed: Feed, library: Framework, recipe: Recipe, job: Job, held: Held) -> Outcome | None:
    """What becomes of a run among these peers; nothing if one of them was lost."""
    try:
        with library.join(world, recipe.tuning, None) as peers:  # the driver looks at their hearts
            strike(job.faults, "join", world.rank, 0, job.attempt + world.generation)
            validation = feed.validation and met(feed.validation, peers)
            outcome = library.fit(recipe, Feed(met(feed.train, peers), validation), job, peers, held)
            peers.all_gather("done")  # nobody leaves while another may still need help, or never come
            return outcome
    except PeerLostError:
        return None


def evaluate(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> dict[str, float]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning, PATIENCE_S) as peers:
        return library.evaluate(recipe, met(shard, peers), peers)


def answering(framework: str, recipe: Recipe, threads: int | None) -> Callable[[Any], Any]:
    """A function from inputs to arrays, for a process that has rows and asks nobody."""
    with without_collecting():
        return registry.framework(framework).answering(recipe, threads)


def predict(world: World, shard: Shard, *, framework: str, recipe: Recipe) -> list[Part]:
    library = registry.framework(framework)
    with library.join(world, recipe.tuning, PATIENCE_S) as peers:
        peers.all_gather("met")  # one that has few rows must not leave while others still connect
        return library.predict(recipe, met(shard, peers), peers)
