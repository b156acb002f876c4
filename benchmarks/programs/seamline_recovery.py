"""Training with two workers in a context of any mode, once in peace and once with a kill; when was who at work?

The victim is the process of the second worker, or the executor that it runs in.
"""

import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
from torch import nn

from benchmarks.programs.workload import MODELS, make_model, make_optimizer, make_rows
from seamline.orca import CheckpointPolicy, Estimator, init_orca_context
from seamline.orca.callbacks import Callback
from seamline.testing.faults import Kill

OPTIONS = {"ray": {"cores": 2}, "standalone": {"num_nodes": 2, "cores": 1, "memory": "512m"}}
KILLED_AFTER, SAVED_EVERY = 30, 10


class Steps(Callback):
    """Each worker writes down when it was done with which step."""

    steers = False
    everywhere = True

    def __init__(self, folder):
        self.folder = folder

    def on_step_end(self, run):
        with (Path(self.folder) / f"{os.getpid()}.steps").open("a") as steps:
            steps.write(f"{run.step} {time.time()}\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedKill(Kill):
    folder: str
    victim: str

    def strike(self, moment):
        if self.is_now(moment):
            (Path(self.folder) / "killed").write_text(str(time.time()))
            if self.victim == "executor":
                next(each for each in psutil.Process().parents() if "java" in each.name()).kill()
            Kill.strike(self, moment)


def fit(folder, faults=()):
    """When it was called, and each worker's steps."""
    began = time.time()
    Estimator.from_torch(
        model=partial(make_model, "1M"),
        optimizer=make_optimizer,
        loss=nn.CrossEntropyLoss(),
        model_dir=Path(folder) / "model",
    ).fit(
        make_rows("1M"),
        batch_size=MODELS["1M"]["batch"],
        workers=2,
        callbacks=[Steps(folder)],
        checkpoint=CheckpointPolicy(every_steps=SAVED_EVERY, every_epochs=None),
        faults=faults,
        verbose=0,
    )
    lines = [note.read_text().splitlines() for note in Path(folder).glob("*.steps")]
    return began, [[(int(step), float(at)) for step, at in map(str.split, each)] for each in lines]


def main(mode, victim):
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as folder:
        with init_orca_context(mode, **OPTIONS.get(mode, {})):
            first = fit(calm)[1]
            kill = NotedKill(rank=1, step=KILLED_AFTER, folder=folder, victim=victim)
            began, workers = fit(folder, [kill])
        killed = float((Path(folder) / "killed").read_text())
    again = [worker for worker in workers if worker[0][1] > killed]
    new = [at for worker in workers for step, at in worker if at > killed and (worker in again or step > KILLED_AFTER)]
    result = {
        "program_s": min(at for worker in first for _, at in worker) - float(os.environ["LAUNCHED"]),
        "fit_s": min(at for worker in workers for _, at in worker) - began,
        "back_s": min(new) - killed,
    }
    print("RESULT " + json.dumps(result), flush=True)


main(*sys.argv[1:])
