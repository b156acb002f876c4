"""Workers that meet and part."""

import contextlib
import time

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seamline.core import registry
from seamline.core.errors import PeerLostError
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


def let_wait(world, patience_s):
    try:
        with join(world, "cpu", patience_s) as ours:
            time.sleep(2 * world.rank)
            return ours.all_gather(world.rank)
    except PeerLostError:
        return "lost"


@pytest.mark.parametrize(("patience_s", "heard"), [(None, [0, 1]), (0.5, "lost")])
def test_a_peer_is_waited_for_as_long_as_is_said(patience_s, heard):
    with contextlib.closing(registry.engine("local", timeout_s=60)) as engine:
        assert engine.run(let_wait, [patience_s] * 2)[0] == heard
