"""A worker killed at any moment costs time: the resumed run ends with the weights of an undisturbed one."""

import signal

import numpy as np
import pytest
import torch
from torch import nn

from seamline.core.errors import CheckpointError, WorkerError, WorkerLostError
from seamline.orca import Estimator, RetryPolicy
from seamline.testing.faults import Kill, Raise, SlowDown
from tests.orca.networks import ROWS, accuracy, assert_same_weights, make_network, make_rows

WORKERS, BATCH, EPOCHS, SAVE_EVERY = 2, 10, 2, 4
STEPS = -(-ROWS // BATCH)
MOMENTS = {
    "start": {"phase": "start"},
    "joined": {"phase": "join"},
    "first step": {"step": 0},
    "middle of an epoch": {"step": STEPS + 6},
    "writing a checkpoint": {"phase": "checkpoint", "step": 2 * SAVE_EVERY},
    "last step": {"step": STEPS * EPOCHS - 1},
    "finish": {"phase": "finish"},
}
AT_ONCE = RetryPolicy(wait_s=0)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def train(model_dir, *faults, data=None, **options):
    model = make_network(dropout=0.3)
    estimator = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), lr=0.01),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 7),
        scheduler_every="step",
        loss=nn.CrossEntropyLoss(),
        metrics=accuracy,
        model_dir=model_dir,
    )
    return estimator.fit(
        data or make_rows(),
        epochs=EPOCHS,
        batch_size=None if data else BATCH,
        validation_data=make_rows(),
        workers=WORKERS,
        checkpoint=SAVE_EVERY if model_dir else None,
        faults=faults,
        **{"retry": AT_ONCE, "verbose": 0, **options},
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return train(tmp_path_factory.mktemp("undisturbed"))


def assert_as_undisturbed(survivor, undisturbed):
    assert_same_weights(survivor, undisturbed)
    survivor.ledger_.check(ROWS)
    assert survivor.ledger_.epochs == list(range(EPOCHS))
    for ours, theirs in zip(survivor.history_, undisturbed.history_, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("rank", range(WORKERS))
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_goes_on_to_the_weights_of_an_undisturbed_one(undisturbed, tmp_path, moment, rank, capsys):
    survivor = train(tmp_path, Kill(rank=rank, **MOMENTS[moment]), verbose=1)
    assert capsys.readouterr().out.count(f"worker {rank} was killed by SIGKILL") == 1
    assert_as_undisturbed(survivor, undisturbed)
    assert not list(tmp_path.rglob(".writing-*")), "half a checkpoint was left behind"


def test_a_new_driver_goes_on_where_a_killed_run_has_ended(undisturbed, tmp_path):
    with pytest.raises(WorkerLostError, match="SIGKILL") as caught:
        train(tmp_path, Kill(rank=1, step=STEPS + 6), retry=0)
    assert caught.value.rank == 1
    assert_as_undisturbed(train(tmp_path, resume="auto"), undisturbed)


def test_without_a_place_for_checkpoints_a_run_starts_from_the_beginning(undisturbed):
    assert_as_undisturbed(train(None, Kill(rank=0, step=3)), undisturbed)


def test_a_machine_that_is_taken_away_has_a_budget_of_its_own(undisturbed, tmp_path):
    taken = Kill(rank=1, step=5, how=signal.SIGTERM)
    assert_as_undisturbed(train(tmp_path, taken, retry=RetryPolicy(failures=0, preemptions=1, wait_s=0)), undisturbed)


def test_what_the_program_raises_is_not_tried_again(tmp_path):
    with pytest.raises(WorkerError, match="bad luck") as caught:
        train(tmp_path, Raise(rank=1, step=2, error=ValueError("bad luck"), attempt=None))
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(CheckpointError, match="no ink"):
        train(tmp_path, Raise(rank=0, phase="checkpoint", error=OSError("no ink")))


def test_a_slow_worker_changes_nothing_but_the_time(undisturbed, tmp_path):
    assert_as_undisturbed(train(tmp_path, SlowDown(rank=1, step=STEPS, seconds=0.01)), undisturbed)


def test_a_phase_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="no phase 'lunch'"):
        Kill(phase="lunch")


class NoisyRows(torch.utils.data.Dataset):
    """Rows with random noise from each of the generators that people use."""

    def __init__(self):
        self.x, self.y = make_rows()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        noise = np.random.normal(size=6) + torch.randn(6).numpy()
        return (self.x[row] + 0.1 * noise).astype(np.float32), self.y[row]


def test_random_augmentation_in_loader_processes_is_the_same_after_a_kill(tmp_path):
    def loader():
        return torch.utils.data.DataLoader(NoisyRows(), batch_size=BATCH, shuffle=True, num_workers=1)

    whole = train(tmp_path / "whole", data=loader())
    survivor = train(tmp_path, Kill(rank=1, step=STEPS + 6), data=loader())
    assert_same_weights(survivor, whole)
    survivor.ledger_.check(ROWS)
