"""Gradient checkpointing: the same gradients from fewer kept bytes, and nothing left behind."""

import copy
import pickle

import pytest
import torch
from torch import nn

from seamline.nano.torch.algorithms import checkpoint_gradients


def block(width=32):
    return nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.3))


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.blocks = nn.ModuleList(block() for _ in range(6))
        self.head = nn.Linear(32, 2)

    def forward(self, x, scale=1.0):
        x = self.first(x)
        for each in self.blocks:
            x = each(x) * scale
        return self.head(x)


def chain():
    return nn.Sequential(nn.Linear(8, 32), *(block() for _ in range(6)), nn.Linear(32, 2))


def trained(model):
    """The gradients and buffers after a step, and the bytes that autograd kept for it."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    torch.manual_seed(1)
    x = torch.randn(64, 8)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(x).square().mean()
    model.zero_grad()
    loss.backward()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    return gradients, [buffer.clone() for buffer in model.buffers()], sum(
        size for place, size in kept.items() if place not in weights
    )  # fmt: skip


CASES = [
    (Tower, {}),
    (Tower, {"modules": ["blocks.0", "blocks.3", "head"]}),
    (chain, {}),
    (chain, {"segments": 3}),
    (chain, {"segments": 1}),
    (lambda: chain().double().float(), {"modules": ["2", "3"]}),
]


@pytest.mark.parametrize(("make", "options"), CASES)
def test_gradients_and_running_averages_are_the_same_and_fewer_bytes_are_kept(make, options):
    torch.manual_seed(0)
    plain = make()
    frugal = copy.deepcopy(plain)
    gradients, buffers, kept = trained(plain)
    with checkpoint_gradients(frugal, **options):
        their_gradients, their_buffers, their_kept = trained(frugal)
    for one, other in zip(gradients, their_gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=0)
    for one, other in zip(buffers, their_buffers, strict=True):  # dropout and batch normalisation see a batch once
        assert torch.equal(one, other)
    assert their_kept < kept


def test_the_blocks_of_a_model_are_kept_by_their_inputs_alone():
    torch.manual_seed(0)
    model = Tower()
    _, _, kept = trained(model)
    with checkpoint_gradients(model):
        _, _, frugal = trained(model)
    assert frugal < kept / 2


def test_switching_off_leaves_the_model_as_it_was():
    model = Tower()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    switch = checkpoint_gradients(model)
    assert any("forward" in vars(module) for module in model.modules())
    switch.remove()
    switch.remove()
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before


def test_evaluation_is_untouched():
    model = Tower().eval()
    x = torch.randn(4, 8)
    with torch.no_grad():
        expected = model(x, scale=2.0)
        with checkpoint_gradients(model):
            assert torch.equal(model(x, scale=2.0), expected)


def test_a_checkpointed_model_copies_and_pickles():
    torch.manual_seed(0)
    model = chain()
    with checkpoint_gradients(model, segments=2):
        expected, _, _ = trained(copy.deepcopy(model))
        twin = pickle.loads(pickle.dumps(model))
        assert next(twin.parameters()).data_ptr() != next(model.parameters()).data_ptr()
        found, _, _ = trained(twin)
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Tower(), {"segments": 2}, "segments are pieces of a plain nn.Sequential, and Tower is none"),
        (chain(), {"segments": 9}, "`1 <= segments <= 8` must hold, but got segments=9"),
        (chain(), {"segments": 2, "modules": ["1"]}, "segments or modules, not both"),
        (Tower(), {"modules": ["nothing"]}, "no module named 'nothing'; there are first, blocks, blocks.0"),
        (Tower(), {"modules": []}, "modules= is empty"),
        (Tower(), {"modules": [nn.ReLU()]}, "a ReLU given in modules= is no part of the model"),
        (nn.Linear(2, 2), {}, "Linear has no nn.Sequential or nn.ModuleList of blocks"),
    ],
)
def test_what_cannot_be_done_is_said(model, options, message):
    with pytest.raises(ValueError, match=message):
        checkpoint_gradients(model, **options)
