"""Training through ``Estimator`` with two workers that leaves a checkpoint every so many steps; 0 is never."""

import sys
import tempfile
from functools import partial

from torch import nn

from benchmarks.programs.workload import MODELS, Stopwatch, make_model, make_optimizer, make_rows
from seamline.orca import CheckpointPolicy, Estimator
from seamline.orca.callbacks import Callback


class Watch(Callback):
    steers = False

    def __init__(self):
        self.watch, self.saved = Stopwatch(), 0

    def on_step_end(self, run):
        self.watch.step()

    def on_checkpoint(self, run, path):
        self.saved += 1


def main(name, every, epochs):
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch()
        Estimator.from_torch(
            model=partial(make_model, name),
            optimizer=make_optimizer,
            loss=nn.CrossEntropyLoss(),
            model_dir=folder if every else None,
        ).fit(
            make_rows(name),
            epochs=epochs,
            batch_size=MODELS[name]["batch"],
            workers=2,
            callbacks=[watch],
            checkpoint=CheckpointPolicy(every_steps=every, every_epochs=None) if every else None,
            verbose=0,
        )
    assert watch.saved >= (epochs * MODELS[name]["steps"] // every if every else 0), watch.saved
    watch.watch.report()


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
