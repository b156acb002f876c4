"""A worker killed at any moment costs time: the resumed run ends with the weights of an undisturbed one."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from seamline.core import checkpoint
from seamline.core.errors import WorkerError
from seamline.orca import Estimator
from seamline.orca.callbacks import Callback
from tests.orca.networks import ROWS, accuracy, assert_same_weights, make_network, make_rows

WORKERS, BATCH, EPOCHS, SAVE_EVERY = 2, 10, 2, 4
STEPS = -(-ROWS // BATCH)
MOMENTS = ["start", "first step", "middle of an epoch", "writing a checkpoint", "last step"]


class Kill(Callback):
    """SIGKILL one rank at one moment, once."""

    everywhere = True
    steers = False

    def __init__(self, rank, moment, folder):
        self.rank, self.moment, self.folder = rank, moment, str(folder)

    def on_fit_begin(self, run):
        (Path(self.folder) / f"pid-{run.rank}").write_text(str(os.getpid()))
        if self.moment == "start" and run.rank == self.rank:
            self.strike()
        if self.moment == "writing a checkpoint" and run.rank == 0:
            self.strike_before_renaming()

    def on_step_end(self, run):
        at = {"first step": 1, "middle of an epoch": STEPS + 7, "last step": STEPS * EPOCHS}.get(self.moment)
        if run.rank == self.rank and run.step == at:
            self.strike()

    def strike_before_renaming(self):
        """The files of the second checkpoint are written, and not yet in their place."""
        rename, calls = checkpoint._put_in_place, []

        def put_in_place(*arguments):
            calls.append(arguments)
            if len(calls) == 2:
                self.strike()
            rename(*arguments)

        checkpoint._put_in_place = put_in_place

    def strike(self):
        struck = Path(self.folder) / "struck"
        if not struck.exists():
            struck.touch()
            os.kill(int((Path(self.folder) / f"pid-{self.rank}").read_text()), signal.SIGKILL)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def train(model_dir, *callbacks, data=None, resume=None):
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
        callbacks=callbacks,
        checkpoint=SAVE_EVERY,
        resume=resume,
        verbose=0,
    )


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return train(tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("rank", range(WORKERS))
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_killed_run_resumes_to_the_weights_of_an_undisturbed_one(undisturbed, tmp_path, moment, rank):
    with pytest.raises(WorkerError, match="SIGKILL") as caught:
        train(tmp_path, Kill(rank, moment, tmp_path))
    assert caught.value.rank == rank
    resumed = train(tmp_path, Kill(rank, moment, tmp_path), resume="auto")
    assert_same_weights(resumed, undisturbed)
    resumed.ledger_.check(ROWS)
    assert resumed.ledger_.epochs == list(range(EPOCHS))
    for ours, theirs in zip(resumed.history_, undisturbed.history_, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    assert not list(tmp_path.rglob(".writing-*")), "half a checkpoint was left behind"


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
    with pytest.raises(WorkerError, match="SIGKILL"):
        train(tmp_path, Kill(1, "middle of an epoch", tmp_path), data=loader())
    resumed = train(tmp_path, Kill(1, "middle of an epoch", tmp_path), data=loader(), resume="auto")
    assert_same_weights(resumed, whole)
    resumed.ledger_.check(ROWS)
