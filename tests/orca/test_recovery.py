"""Where single workers can be replaced, those that are left go on in memory: nothing is started or read again."""

import os
import signal

import pytest
import torch
from torch import nn

from seamline.orca import Estimator, RetryPolicy
from seamline.orca.callbacks import Callback, EarlyStopping
from seamline.testing.faults import Kill
from tests.orca.networks import ROWS, accuracy, assert_as_undisturbed, assert_same_weights, make_rows

BATCH, EPOCHS = 10, 3
STEPS = -(-ROWS // BATCH)


class Watch(Callback):
    """What happens to the first worker."""

    steers = False

    def __init__(self):
        self.begun, self.epochs, self.ended = 0, [], 0

    def on_fit_begin(self, run):
        self.begun += 1

    def on_epoch_begin(self, run):
        self.epochs.append(run.epoch)

    def on_fit_end(self, run):
        self.ended += 1


class DieOnce:
    """Kills the process of worker 1 in the middle of validation, once."""

    def __init__(self, marker, calls):
        self.marker, self.calls = marker, calls

    def __call__(self, outputs, targets):
        self.calls -= 1
        if self.calls == 0 and os.environ.get("DIES") and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return accuracy(outputs, targets)


class DieAtEpochEnd(Callback):
    """Kills one worker after the epoch's callbacks, before all have agreed that it is over."""

    everywhere = True
    steers = False

    def __init__(self, rank, epoch):
        self.rank, self.epoch = rank, epoch

    def on_epoch_end(self, run):
        if run.rank == self.rank and run.epoch == self.epoch and run.world.generation == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def make_network():
    torch.manual_seed(3)
    parts = [nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Dropout(0.2), nn.ReLU(), nn.Linear(12, 3)]
    return nn.Sequential(*parts)


def train(*faults, workers=2, metrics=accuracy, **options):
    estimator = Estimator.from_torch(
        model=make_network,
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        loss=nn.CrossEntropyLoss(),
        metrics=metrics,
    )
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "validation_data": make_rows(), "verbose": 0, **options}
    return estimator.fit(make_rows(), workers=workers, faults=faults, **settings)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def undisturbed():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return train()


@pytest.mark.parametrize("step", [0, STEPS - 1, STEPS + 6])
def test_those_who_are_left_go_on_without_starting_again(undisturbed, step):
    watch = Watch()
    survivor = train(Kill(rank=1, step=step), callbacks=[watch])
    assert_as_undisturbed(survivor, undisturbed)
    assert (watch.begun, watch.epochs, watch.ended) == (1, list(range(EPOCHS)), 1)


def test_the_first_worker_is_replaced_like_any_other(undisturbed):
    stopping = EarlyStopping("val_loss", patience=10)
    survivor = train(Kill(rank=0, step=2 * STEPS + 3), callbacks=[stopping])
    assert_as_undisturbed(survivor, undisturbed)
    calm = EarlyStopping("val_loss", patience=10)
    train(callbacks=[calm])
    assert stopping.state_dict() == calm.state_dict()


def test_losses_one_after_another_and_at_once(undisturbed):
    one_by_one = [Kill(rank=1, step=4), Kill(rank=0, step=9, attempt=1), Kill(rank=1, step=9, attempt=2)]
    assert_as_undisturbed(train(*one_by_one), undisturbed)
    assert_as_undisturbed(train(Kill(rank=None, step=STEPS + 2)), undisturbed)


def test_a_worker_that_dies_in_validation(undisturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("DIES", "1")
    metrics = {"accuracy": DieOnce(tmp_path / "died", calls=2)}
    survivor = train(metrics=metrics, callbacks=[watch := Watch()])
    assert (tmp_path / "died").exists()
    assert_as_undisturbed(survivor, undisturbed)
    assert watch.begun == 1


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("epoch", [0, EPOCHS - 1])
def test_a_worker_that_dies_while_an_epoch_is_closed(undisturbed, rank, epoch):
    assert_as_undisturbed(train(callbacks=[DieAtEpochEnd(rank, epoch)]), undisturbed)


def test_a_run_that_stops_in_the_middle_of_an_epoch_closes_it_once():
    def stopped(*callbacks):
        return train(max_steps=STEPS + 4, callbacks=callbacks)

    calm, disturbed = stopped(), stopped(DieAtEpochEnd(1, 1))
    assert_same_weights(disturbed, calm)
    assert disturbed.history_ == calm.history_
    assert disturbed.ledger_.to_dict() == calm.ledger_.to_dict()


def test_among_several_workers_the_one_that_is_furthest_is_followed():
    calm = train(workers=4, deterministic=4)  # of four, one has no connection to the lost one in use
    faults = [Kill(rank=3, step=7), Kill(rank=0, step=STEPS + 1, attempt=1)]
    disturbed = train(*faults, workers=4, deterministic=4, timeout_s=30)
    assert_as_undisturbed(disturbed, calm)


def test_replacing_is_paid_for_from_the_same_budget():
    with pytest.raises(Exception, match="worker 1 was killed by SIGKILL"):
        train(Kill(rank=1, step=3, attempt=None), retry=RetryPolicy(failures=2, wait_s=0))
