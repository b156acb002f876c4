"""The run that is disturbed: two workers, dropout, momentum, a shuffled order, a checkpoint every few steps.

Its one argument is JSON: the ``mode`` of the context, ``model_dir``, ``faults`` as the arguments of ``Kill``, and a
folder for ``notes``. Each worker notes its process there when it begins, and the driver in the end what was learned.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from seamline.orca import RetryPolicy, init_orca_context
from seamline.orca.callbacks import Callback
from seamline.testing.faults import Kill, SlowDown
from tests.core.bucket import Known
from tests.orca.networks import ROWS, make_estimator, make_rows

BATCH, EPOCHS, EVERY, STEP_S = 10, 3, 4, 0.03
STEPS = EPOCHS * -(-ROWS // BATCH)
OPTIONS = {"ray": {"cores": 2}}


class Note(Callback):
    """Who works here; written when there is something to disturb."""

    everywhere = True
    steers = False

    def __init__(self, folder):
        self.folder = folder

    def on_fit_begin(self, run):
        note = Path(self.folder) / f"{time.monotonic_ns()}-{run.rank}.part"
        note.write_text(str(os.getpid()))
        note.rename(note.with_suffix(".worker"))


def train(mode, model_dir, notes, faults=()):
    kills = [Kill(**{**fault, "how": signal.Signals(fault["how"])}) for fault in faults]
    with init_orca_context(mode, **OPTIONS.get(mode, {})):
        return make_estimator(model_dir).fit(
            make_rows(),
            epochs=EPOCHS,
            batch_size=BATCH,
            workers=2,
            checkpoint=EVERY,
            resume="auto",
            callbacks=[Note(notes)],
            faults=[Known(), SlowDown(seconds=STEP_S, attempt=None), *kills],
            retry=RetryPolicy(failures=10, wait_s=0),
        )


def learned(estimator):
    """The weights as a number that changes with each of their bits; the ledger is complete."""
    estimator.ledger_.check(ROWS)
    assert estimator.ledger_.epochs == list(range(EPOCHS)), estimator.ledger_.epochs
    state = sorted(estimator.state_["model"].items())
    return hashlib.sha256(b"".join(name.encode() + tensor.numpy().tobytes() for name, tensor in state)).hexdigest()


if __name__ == "__main__":
    wish = json.loads(sys.argv[1])
    answer = learned(train(**wish))
    result = Path(wish["notes"]) / "learned"
    result.with_suffix(".part").write_text(answer)
    result.with_suffix(".part").rename(result)
