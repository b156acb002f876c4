"""Kills that take more than a worker with them, and the run that is to survive them."""

import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from seamline.orca import OrcaContext, RetryPolicy
from seamline.testing.faults import Kill
from tests.engines.inventory import host
from tests.orca.networks import ROWS, assert_same_weights, make_estimator, make_rows

EPOCHS, SAVE_EVERY = 2, 4


def _jvms_above():
    return [each for each in host().parents() if "java" in each.name()]


VICTIMS = {
    "worker": psutil.Process,
    "host": host,
    "executor": lambda: _jvms_above()[0],
    "node": lambda: _jvms_above()[1],
}
"""The process to kill, as a worker finds it; its host is Spark's Python or Ray's node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAbove(Kill):
    """Kill what a worker runs in, with all that goes with it; a file in ``marks`` says that it was done."""

    victim: str
    marks: str = ""

    def strike(self, moment):
        if self.is_now(moment):
            (Path(self.marks) / f"{self}-killed").touch()
            VICTIMS[self.victim]().kill()
            time.sleep(30)  # no step further, however long it takes until this process is gone too

    def __str__(self):
        return f"{self.victim}-{self.rank}-{self.phase}"


def fit(model_dir, *faults, **options):
    settings = {"epochs": EPOCHS, "batch_size": 10, "workers": 2, "checkpoint": SAVE_EVERY, "verbose": 0}
    settings |= {"retry": RetryPolicy(wait_s=0), "faults": faults, **options}
    return make_estimator(model_dir).fit(make_rows(), **settings)


def fit_calmly(model_dir, **options):
    """The same in processes of this machine, one thread each, and nobody disturbs it."""
    assert OrcaContext.current() is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return fit(model_dir, **options)


def assert_as_calm(survivor, calm):
    """The same weights to the bit, and every row once in each epoch."""
    assert_same_weights(survivor, calm)
    survivor.ledger_.check(ROWS)
    assert survivor.ledger_.epochs == calm.ledger_.epochs


def wait_for(folder, pattern):
    """Return when there is such a file."""
    deadline = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} within a minute"
        time.sleep(0.02)
