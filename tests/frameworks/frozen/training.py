"""Training with and without a frozen part, to compare."""

import torch
from torch.utils.data import default_collate

from seamline.frameworks.torch.frozen import FrozenPart
from tests.frameworks.frozen.networks import orders, step_of


def load_rows(data):
    return lambda numbers: default_collate([data[number] for number in numbers])


def loader(data, batches):
    return lambda: (load_rows(data)(numbers) for numbers in batches)


def find(model, data, *, said=None, precision="fp32", **options):
    """The frozen part, found with the first batch."""
    batch = load_rows(data)(next(orders(len(data)))[0])
    say = (said if said is not None else []).append
    return FrozenPart.of(model, batch, step_of(model), precision=precision, say=say, **options)


def make(kind):
    torch.manual_seed(3)
    return kind()


def train(model, data, *, part=None, epochs=3, drop_last=False, by_row=True, every_step=lambda step: None):
    """SGD over shuffled epochs; returns the gradients of every step. Batches come through ``part`` if there is one."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    step, seen, count = step_of(model), [], 0
    for batches in orders(len(data), epochs, drop_last=drop_last):
        load = loader(data, batches)
        rows = load_rows(data) if by_row else None
        for batch in part.epoch(batches, load, rows) if part else load():
            torch.manual_seed(count)
            every_step(count)
            optimizer.zero_grad()
            step(batch).backward()
            seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
            optimizer.step()
            count += 1
    return seen


def assert_same_bits(ours, theirs):
    assert len(ours) == len(theirs)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert len(one) == len(other) > 0
        assert all(map(torch.equal, one, other)), f"step {number} differs"


def assert_close(ours, theirs, within):
    for one, other in zip(ours, theirs, strict=True):
        for a, b in zip(one, other, strict=True):
            assert (a - b).norm() <= within * b.norm().clamp(min=1e-3)
