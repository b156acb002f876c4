"""The same bits with any number of workers: dropout, batch normalisation, short batches and uneven weights included."""

import numpy as np
import pytest
import torch
from torch import nn

from seamline.core.errors import CheckpointError
from seamline.core.logical import share
from seamline.frameworks.torch.canonical import _branches
from seamline.orca import Estimator, Tuning
from seamline.testing.faults import Kill
from tests.orca.networks import ROWS, assert_same_weights, make_rows, weights

CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0])


class Network(nn.Module):
    """Everything that usually depends on who computes which rows, and a layer that is never used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.3), nn.Linear(24, 3))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.body(x + 0.01 * torch.randn_like(x) if self.training else x)


def fit(workers, model_dir=None, **options):
    estimator = Estimator.from_torch(
        model=Network,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0.1),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0),
        loss=nn.CrossEntropyLoss(weight=CLASS_WEIGHTS),
        tuning=Tuning(clip_norm=0.5),
        model_dir=model_dir,
    )
    rows = make_rows()
    settings = {"epochs": 2, "batch_size": 40, "verbose": 0, "deterministic": True, "workers": workers, **options}
    return estimator.fit(rows, validation_data=rows, **settings)


@pytest.fixture(scope="module")
def alone():
    return fit(1)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_any_number_of_workers_gives_the_same_bits(alone, workers):
    together = fit(workers)
    assert_same_weights(together, alone)
    assert together.history_ == alone.history_
    together.ledger_.check(ROWS)


def test_a_run_that_loses_a_worker_gives_the_same_bits(alone, tmp_path):
    assert_same_weights(fit(2, tmp_path, checkpoint=2, faults=[Kill(rank=1, step=4)]), alone)


def test_a_run_goes_on_with_other_workers_to_the_same_bits(alone, tmp_path):
    fit(2, tmp_path, max_steps=4)
    assert_same_weights(fit(1, tmp_path, resume="auto"), alone)
    with pytest.raises(CheckpointError, match="logical_workers=8, this run has logical_workers=4"):
        fit(1, tmp_path, resume="auto", deterministic=4)


def test_it_learns_what_the_usual_way_does_where_nothing_is_random(alone):
    """One logical worker is one worker; with several, averages over rows are the same but for rounding."""

    def learned(**options):
        rows = make_rows()
        model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
        torch.manual_seed(1)
        for parameter in model.parameters():
            nn.init.normal_(parameter)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        estimator = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(CLASS_WEIGHTS))
        return weights(estimator.fit(rows, batch_size=40, epochs=2, verbose=0, **options))

    plain = learned()
    for count in (1, 8):
        for ours, theirs in zip(learned(deterministic=count), plain, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_threads_and_settings_are_as_before(alone):
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(("wish", "workers"), [(2, 3), (6, 2)])
def test_a_number_of_logical_workers_that_makes_no_tree_is_refused(wish, workers):
    with pytest.raises(ValueError, match="take a power of two that is not smaller"):
        fit(workers, deterministic=wish)


@pytest.mark.parametrize("workers", range(1, 9))
def test_the_branches_of_all_workers_are_the_leaves_in_order(workers):
    branches = [branch for worker in range(workers) for branch in _branches(share(8, worker, workers))]
    assert [leaf for branch in branches for leaf in branch] == list(range(8))
    assert all(branch.start % len(branch) == 0 and len(branch) & (len(branch) - 1) == 0 for branch in branches)
