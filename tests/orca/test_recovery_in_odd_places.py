"""Losses where there is more to lose than weights: before a group has formed, and what one worker alone knows."""

import os
import signal
from datetime import timedelta
from functools import partial

import pytest
import torch
from torch import nn

from seamline.frameworks.torch import world as torch_world
from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import Callback, EarlyStopping
from seamline.testing.faults import Kill
from tests.orca.networks import ROWS, assert_as_undisturbed, assert_same_weights, make_rows

BATCH, EPOCHS = 10, 2
STEPS = -(-ROWS // BATCH)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


class Partly(nn.Module):
    """A part of it is never used, and what it computes depends on where its random numbers are."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.used = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.ReLU(), nn.Linear(12, 3))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


def make_estimator(**options):
    given = {"model": Partly, "loss": nn.CrossEntropyLoss(), **options}
    return Estimator.from_torch(optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01), **given)


def train(*faults, estimator=None, **options):
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "verbose": 0, "workers": 2, "timeout_s": 30, **options}
    return (estimator or make_estimator()).fit(make_rows(), faults=faults, **settings)


@pytest.fixture(scope="module")
def undisturbed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return train()


class DieAmongThoseWhoHaveMet(Callback):
    """Kills one worker after all have met, before they are connected to each other."""

    steers = False

    def __init__(self, rank):
        self.rank, self.driver = rank, os.getpid()

    def __setstate__(self, state):
        vars(self).update(state)
        if os.getpid() == self.driver:
            return
        meet = torch_world._meet

        def meet_and_die(world):
            store = meet(world)
            if world.rank == self.rank and world.generation == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return store

        torch_world._meet, torch_world._FORM_WITHIN = meet_and_die, timedelta(seconds=3)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_that_dies_before_all_are_connected(undisturbed, rank):
    assert_as_undisturbed(train(callbacks=[DieAmongThoseWhoHaveMet(rank)]), undisturbed)


@pytest.mark.parametrize("step", [3, STEPS + 2])
def test_a_part_that_is_never_used_is_found_again_without_a_trace(undisturbed, step):
    assert_as_undisturbed(train(Kill(rank=1, step=step)), undisturbed)


def test_callbacks_know_of_validations_within_the_epoch_when_the_first_worker_is_replaced():
    def watched(*faults):
        stopping = EarlyStopping("val_loss", patience=100)
        train(*faults, callbacks=[stopping], validation_data=make_rows(), validate_every=2)
        return stopping.state_dict()

    assert watched(Kill(rank=0, step=5)) == watched()


@pytest.mark.parametrize("phase", ["finish", "step"])
def test_a_run_that_was_ended_within_an_epoch_goes_on_there_although_its_first_worker_was_lost(
    tmp_path, undisturbed, phase
):
    fault = Kill(rank=0, phase="finish") if phase == "finish" else Kill(rank=0, step=STEPS - 3)
    train(fault, estimator=make_estimator(model_dir=tmp_path), max_steps=STEPS - 2)
    went_on = train(estimator=make_estimator(model_dir=tmp_path), resume="auto")
    assert_same_weights(went_on, undisturbed)
    went_on.ledger_.check(ROWS)


def report(model, batch):
    inputs, targets = batch
    loss = nn.functional.cross_entropy(model(inputs), targets)
    return {"loss": loss, "first": inputs[:, 0].mean()}


def test_numbers_of_a_step_that_is_repeated_count_once():
    def reporting(*faults):
        network = partial(nn.Linear, 6, 3)
        own = make_estimator(model=network, loss=None, train_step=report, tuning=Tuning(accumulate=2))
        return train(*faults, estimator=own).history_

    assert reporting(Kill(rank=1, step=4)) == reporting()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": (1, 64)}, "batch_size=10 is smaller than workers=64"),
        ({"workers": (1, 9), "deterministic": True}, "deterministic=8 logical workers for workers=9"),
    ],
)
def test_more_workers_than_there_can_ever_be_are_refused_before_they_come(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)
