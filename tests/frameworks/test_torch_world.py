"""Workers that meet and part."""

import contextlib

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seamline.core import registry
from seamline.frameworks.torch.world import join

ROUNDS = 20


def meet_and_part(world):
    """One short training, whose replica is still known when the connection ends."""
    with join(world, "cpu") as ours:
        model = DistributedDataParallel(nn.Linear(6, 3))
        model(torch.randn(4, 6)).sum().backward()
        ours.all_gather("done")
        return float(next(model.parameters()).grad.sum())


def meet_often(world, _):
    return [meet_and_part(world) for _ in range(ROUNDS)]


def test_workers_part_though_gloo_still_holds_their_tensors():
    with contextlib.closing(registry.engine("local", timeout_s=60)) as engine:
        first, second = engine.run(meet_often, [None, None])
    assert len(first) == ROUNDS
    assert first == second
