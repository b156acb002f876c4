"""Callbacks: when they are called, what they may do, and the ones that ship."""

import csv
import os
import threading

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from seamline.core.errors import SeamlineError
from seamline.orca import Estimator
from seamline.orca.callbacks import Callback, CSVLogger, EarlyStopping, ModelCheckpoint, TensorBoard
from tests.orca.networks import accuracy, make_network, make_rows

X, Y = make_rows()
STEPS = 11


def fit(*callbacks, lr=0.1, est=None, **options):
    model = make_network()
    est = est or Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), lr), loss=nn.CrossEntropyLoss(), metrics=accuracy
    )
    options = {"epochs": 3, "batch_size": 10, "validation_data": (X, Y), "verbose": 0, **options}
    return est.fit((X, Y), callbacks=callbacks, **options)


class Recorder(Callback):
    """Notes what happens and where."""

    def __init__(self):
        self.events = []
        self.process = None

    def on_fit_begin(self, run):
        self.process = os.getpid()
        self.events.append("fit begins")

    def on_epoch_begin(self, run):
        self.events.append(f"epoch {run.epoch} begins")

    def on_step_end(self, run):
        self.events.append(f"step {run.step}")

    def on_epoch_end(self, run):
        self.events.append(f"epoch {run.epoch} ends with {sorted(run.logs)}")

    def on_fit_end(self, run):
        self.events.append("fit ends")


@pytest.mark.parametrize("workers", [1, 2])
def test_events_come_in_order_and_what_was_noted_comes_home(workers):
    recorder = Recorder()
    fit(recorder, epochs=2, workers=workers)
    assert (recorder.process == os.getpid()) == (workers == 1)
    names = sorted(["epoch", "loss", "lr", "val_loss", "val_accuracy"])
    expected = ["fit begins"]
    for epoch in range(2):
        steps = [f"step {epoch * STEPS + step + 1}" for step in range(STEPS)]
        expected += [f"epoch {epoch} begins", *steps, f"epoch {epoch} ends with {names}"]
    assert recorder.events == [*expected, "fit ends"]


class StopAt(Callback):
    def __init__(self, step=None, epoch=None, epoch_begin=None):
        self.step, self.epoch, self.epoch_begin = step, epoch, epoch_begin

    def on_epoch_begin(self, run):
        if run.epoch == self.epoch_begin:
            run.stop()

    def on_step_end(self, run):
        if run.step == self.step:
            run.stop()

    def on_epoch_end(self, run):
        if run.epoch == self.epoch:
            run.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_callback_on_the_first_worker_stops_all_of_them(workers):
    est = fit(StopAt(step=STEPS + 3), workers=workers)
    assert est.ledger_.ranges(1) == [(0, 30)]
    assert len(fit(StopAt(epoch=1), epochs=5, workers=workers).history_) == 2


class Watching(StopAt):
    steers = False


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("callback", [StopAt(epoch_begin=1), Watching(epoch_begin=1), Watching(step=STEPS + 3)])
def test_stopping_at_other_times_ends_the_run_with_the_epoch(callback, workers):
    est = fit(callback, epochs=5, workers=workers)
    assert est.ledger_.epochs == [0, 1]
    est.ledger_.check(103)


def test_an_attribute_that_cannot_travel_costs_a_warning_and_not_the_run(capfd):
    class Locked(Recorder):
        def on_fit_end(self, run):
            self.lock = threading.Lock()

    locked = Locked()
    est = fit(locked, workers=2)
    assert len(est.history_) == 3
    assert len(locked.events) > 3
    assert "Locked.lock stays on its worker" in capfd.readouterr().err


@pytest.mark.parametrize("workers", [1, 2])
def test_early_stopping_ends_all_workers_and_says_when(workers):
    stopping = EarlyStopping("val_loss", patience=2, min_delta=10.0)
    est = fit(stopping, epochs=9, workers=workers)
    assert stopping.stopped_epoch == 3
    assert len(est.history_) == 3


def test_early_stopping_waits_for_accuracy_to_rise():
    for name in ("val_accuracy", "val_acc", "auc", "val_f1", "val_r2_score"):
        assert EarlyStopping(name).monitor.sign == 1.0, name
    for name in ("val_loss", "val_mape", "val_f1_loss", "val_brier_score", "threshold", "perplexity"):
        assert EarlyStopping(name).monitor.sign == -1.0, name
    with pytest.raises(ValueError, match="nothing named 'val_auc' to monitor; this run logs 'epoch', 'loss'"):
        fit(EarlyStopping("val_auc"))
    with pytest.raises(ValueError, match="Give validation_data for val_ entries"):
        fit(EarlyStopping("val_loss"), validation_data=None)


def test_an_early_stopped_run_is_over_also_when_resumed(tmp_path):
    def make():
        model = make_network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), model_dir=tmp_path)

    fit(EarlyStopping("loss", patience=1, min_delta=10.0), epochs=9, est=make())
    again = EarlyStopping("loss", patience=1, min_delta=10.0)
    assert len(fit(again, epochs=9, est=make(), resume="auto").history_) == 2
    assert again.stopped_epoch == 2


@pytest.mark.parametrize("workers", [1, 2])
def test_the_best_model_is_kept(tmp_path, workers):
    best = ModelCheckpoint(tmp_path / "best", monitor="val_loss")
    est = fit(best, lr=3.0, epochs=6, workers=workers)
    losses = [epoch["val_loss"] for epoch in est.history_]
    assert np.argmin(losses) != len(losses) - 1, "the last epoch is the best: this test shows nothing"
    loaded = est.load(tmp_path / "best")
    assert loaded.evaluate((X, Y))["loss"] == pytest.approx(min(losses), abs=1e-6)
    assert best.monitor.best == pytest.approx(min(losses))


def test_every_epoch_can_be_kept(tmp_path):
    fit(ModelCheckpoint(tmp_path / "epoch-{epoch}", best_only=False))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-1", "epoch-2", "epoch-3"]


def test_csv_has_a_row_for_each_epoch(tmp_path):
    est = fit(CSVLogger(tmp_path / "logs" / "run.csv"), workers=2)
    with (tmp_path / "logs" / "run.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in rows] == est.history_


def test_tensorboard_reads_what_was_logged(tmp_path):
    est = fit(TensorBoard(tmp_path, every_steps=5), workers=2)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    losses = [event.value for event in events.Scalars("epoch/val_loss")]
    assert losses == pytest.approx([epoch["val_loss"] for epoch in est.history_], rel=1e-5)
    assert [event.step for event in events.Scalars("step/loss")] == [5, 10, 15, 20, 25, 30]
    rates = [event.value for event in events.Scalars("pace/rows_per_s")]
    assert rates == pytest.approx([est.profile_.rows_per_s(epoch) for epoch in (1, 2, 3)], rel=1e-5)


def test_replicas_that_come_apart_are_noticed():
    class Meddle(Callback):
        def on_epoch_begin(self, run):
            run.model[0].weight.data += 0.01 * run.epoch

    with pytest.raises(SeamlineError, match=r"the workers disagree on 0.weight.*everywhere = True"):
        fit(Meddle(), epochs=3, workers=2)


class Thaw(Callback):
    """Freeze the first layer, and thaw it in the second epoch."""

    everywhere = True

    def on_fit_begin(self, run):
        run.model[0].requires_grad_(False)

    def on_epoch_begin(self, run):
        if run.epoch == 1:
            run.model[0].requires_grad_(True)


def test_thawing_a_part_in_the_middle_trains_it_alike_on_all_workers():
    one, two = fit(Thaw()), fit(Thaw(), workers=2)
    for ours, theirs in zip(one.state_["model"].values(), two.state_["model"].values(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
