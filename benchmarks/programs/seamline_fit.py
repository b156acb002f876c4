"""The same training through ``Estimator`` with two workers, in a context of any mode.

With ``functions`` the workers make model and optimizer, as they do under torchrun; with ``instances`` the driver does.
"""

import sys
from functools import partial

from torch import nn

from benchmarks.programs.workload import MODELS, Stopwatch, make_model, make_optimizer, make_rows
from seamline.orca import Estimator, init_orca_context
from seamline.orca.callbacks import Callback


class Watch(Callback):
    steers = False

    def __init__(self):
        self.watch = Stopwatch()

    def on_step_end(self, run):
        self.watch.step()


def main(name, form, mode="local"):
    model, optimizer, watch = partial(make_model, name), make_optimizer, Watch()
    if form == "instances":
        model = model()
        optimizer = make_optimizer(model)
    est = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss())
    options = {"cores": 2} if mode == "ray" else {}
    with init_orca_context(mode, **options):
        est.fit(make_rows(name), batch_size=MODELS[name]["batch"], workers=2, callbacks=[watch], verbose=0)
    watch.watch.report()


main(*sys.argv[1:])
