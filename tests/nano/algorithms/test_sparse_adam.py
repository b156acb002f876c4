"""One Adam for dense and sparse gradients, held against torch's two."""

import copy

import pytest
import torch
from torch import nn

from seamline.nano.torch.algorithms import SparseAdam

OPTIONS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-6}


class Recommender(nn.Module):
    """An embedding whose gradient is sparse, and a layer whose gradient is dense."""

    def __init__(self, sparse=True):
        super().__init__()
        torch.manual_seed(0)
        self.items = nn.Embedding(20, 4, sparse=sparse)
        self.head = nn.Linear(4, 3)

    def forward(self, ids):
        return self.head(self.items(ids))


def steps(model, *optimizers, count=12, first=0):
    """Random batches, some with an item twice, which has to count once for the update and twice for the gradient."""
    for step in range(first, first + count):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(0, 20, (8,), generator=generator)
        y = torch.randint(0, 3, (8,), generator=generator)
        model.zero_grad()
        nn.functional.cross_entropy(model(ids), y).backward()
        for optimizer in optimizers:
            optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}, {"maximize": True}])
def test_dense_gradients_give_what_torchs_adam_gives_bit_for_bit(options):
    ours, torchs = Recommender(sparse=False), Recommender(sparse=False)
    learned = steps(ours, SparseAdam(ours.parameters(), **OPTIONS, **options))
    assert same(learned, steps(torchs, torch.optim.Adam(torchs.parameters(), **OPTIONS, **options)))


@pytest.mark.parametrize("options", [{}, {"maximize": True}])
def test_a_mixed_model_gives_what_torchs_two_optimizers_give_side_by_side(options):
    ours, torchs = Recommender(), Recommender()
    learned = steps(ours, SparseAdam(ours.parameters(), **OPTIONS, **options))
    expected = steps(
        torchs,
        torch.optim.SparseAdam(torchs.items.parameters(), **OPTIONS, **options),
        torch.optim.Adam(torchs.head.parameters(), **OPTIONS, **options),
    )
    for found, wanted in zip(learned, expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-7, rtol=0)


def test_rows_that_a_batch_does_not_have_stay_untouched():
    model = Recommender()
    before = model.items.weight.detach().clone()
    nn.functional.cross_entropy(model(torch.tensor([3, 3, 7])), torch.tensor([0, 1, 2])).backward()
    SparseAdam(model.parameters()).step()
    moved = (model.items.weight != before).any(dim=1).nonzero().flatten()
    assert moved.tolist() == [3, 7]


def test_a_saved_state_goes_on_as_if_nothing_had_happened(tmp_path):
    whole = Recommender()
    expected = steps(whole, SparseAdam(whole.parameters(), **OPTIONS))
    model = Recommender()
    optimizer = SparseAdam(model.parameters(), **OPTIONS)
    steps(model, optimizer, count=5)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "half.pt")
    saved = torch.load(tmp_path / "half.pt", weights_only=True)
    again = Recommender()
    again.load_state_dict(saved["model"])
    optimizer = SparseAdam(again.parameters())
    optimizer.load_state_dict(saved["optimizer"])
    assert same(steps(again, optimizer, count=7, first=5), expected)


def test_a_state_of_torchs_adam_can_be_taken_over():
    model, twin = Recommender(sparse=False), Recommender(sparse=False)
    torchs = torch.optim.Adam(model.parameters(), **OPTIONS)
    steps(model, torchs, count=3)
    twin.load_state_dict(copy.deepcopy(model.state_dict()))
    ours = SparseAdam(twin.parameters())
    ours.load_state_dict(copy.deepcopy(torchs.state_dict()))
    assert same(steps(model, torchs, count=3, first=3), steps(twin, ours, count=3, first=3))


def test_schedules_and_closures_work_as_with_any_optimizer():
    model = Recommender()
    optimizer = SparseAdam(model.parameters(), lr=0.5)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    ids, y = torch.tensor([1, 2]), torch.tensor([0, 1])

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids), y)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert optimizer.step(closure) < first


def test_weight_decay_on_a_sparse_gradient_is_refused_with_what_to_do():
    model = Recommender()
    nn.functional.cross_entropy(model(torch.tensor([1])), torch.tensor([0])).backward()
    with pytest.raises(ValueError, match="give that parameter a group of its own with weight_decay=0"):
        SparseAdam(model.parameters(), weight_decay=0.1).step()


@pytest.mark.parametrize("options", [{"lr": -1.0}, {"eps": 0.0}, {"betas": (1.0, 0.9)}, {"weight_decay": -0.1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="must hold"):
        SparseAdam([nn.Parameter(torch.zeros(1))], **options)
