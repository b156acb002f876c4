"""Validation within an epoch: when it takes place, what it says, and who listens."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from seamline.orca import Estimator
from seamline.orca.callbacks import Callback, EarlyStopping, ModelCheckpoint
from tests.orca.networks import accuracy, assert_same_weights, make_network, make_rows

X, Y = make_rows()
STEPS = 11
"""Of an epoch of 103 rows in batches of 10."""


def make(lr=0.1, model_dir=None):
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    return Estimator.from_torch(
        model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), metrics=accuracy, model_dir=model_dir
    )


def fit(*callbacks, est=None, data=(X, Y), **options):
    options = {"epochs": 2, "batch_size": 10, "validation_data": (X, Y), "verbose": 0, "validate_every": 4, **options}
    return (est or make()).fit(data, callbacks=callbacks, **options)


def scores_after(steps):
    """What the model scores after so many steps, by training only these."""
    est = make().fit((X, Y), batch_size=10, epochs=2, max_steps=steps, verbose=0)
    return {f"val_{name}": value for name, value in est.evaluate((X, Y)).items()}


@pytest.mark.parametrize("workers", [1, 2])
def test_each_validation_scores_the_model_of_its_step(workers):
    est = fit(workers=workers)
    # Every four steps, and at the end of each epoch.
    assert [each["step"] for each in est.validations_] == [4, 8, 11, 12, 16, 20, 22]
    assert [each["epoch"] for each in est.validations_] == [1, 1, 1, 2, 2, 2, 2]
    for record in (est.validations_[0], est.validations_[4]):
        expected = {"epoch": record["epoch"], "step": record["step"], **scores_after(record["step"])}
        assert record == pytest.approx(expected, abs=1e-5)
    for epoch, last in zip(est.history_, (est.validations_[2], est.validations_[6]), strict=True):
        assert epoch["val_loss"] == last["val_loss"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_looking_does_not_change_what_is_learned(deterministic):
    watched, plain = fit(deterministic=deterministic), fit(validate_every=None, deterministic=deterministic)
    assert_same_weights(watched, plain)
    assert watched.history_ == plain.history_
    assert [each["step"] for each in plain.validations_] == [11, 22]


def test_deterministic_scores_are_the_same_on_any_number_of_workers():
    assert fit(deterministic=True).validations_ == fit(deterministic=True, workers=2).validations_


class Listener(Callback):
    def __init__(self):
        self.heard = []

    def on_validation(self, run):
        self.heard.append((run.step, sorted(run.logs), run.model.training))


@pytest.mark.parametrize("workers", [1, 2])
def test_callbacks_hear_of_validations_within_the_epoch(workers):
    listener = Listener()
    fit(listener, workers=workers, epochs=1)
    names = ["epoch", "step", "val_accuracy", "val_loss"]
    assert listener.heard == [(4, names, True), (8, names, True)]


@pytest.mark.parametrize("workers", [1, 2])
def test_early_stopping_counts_validations_and_stops_at_once(workers):
    stopping = EarlyStopping("val_loss", patience=2, min_delta=10.0)
    est = fit(stopping, epochs=5, workers=workers, validate_every=3)
    assert [each["step"] for each in est.validations_] == [3, 6, 9]
    assert est.ledger_.ranges(0) == [(0, 90)], "nine steps of ten rows"
    assert stopping.stopped_epoch == 1
    on_training_loss = EarlyStopping("loss", patience=2, min_delta=10.0)
    assert len(fit(on_training_loss, epochs=5, workers=workers).history_) == 3, "that one is not among the scores"


def test_the_best_model_may_be_one_within_an_epoch(tmp_path):
    best = ModelCheckpoint(tmp_path / "best-{step}", monitor="val_loss")
    est = fit(best, est=make(lr=3.0), epochs=3, validate_every=2)
    losses = {each["step"]: each["val_loss"] for each in est.validations_}
    step = min(losses, key=losses.get)
    assert step % STEPS, "the best is the end of an epoch: this test shows nothing"
    assert best.saved == str(tmp_path / f"best-{step}")
    assert est.load(best.saved).evaluate((X, Y))["loss"] == pytest.approx(losses[step], abs=1e-6)


def test_a_resumed_run_has_the_validations_of_an_undisturbed_one(tmp_path):
    """The checkpoint of step 8 is written after its validation, and the waiting of callbacks is in it."""

    def waited(**options):
        stopping = EarlyStopping("val_loss", patience=99, min_delta=10.0)
        est = fit(stopping, est=make(model_dir=tmp_path), **options)
        return est.validations_, stopping.waited

    fit(EarlyStopping("val_loss", patience=99, min_delta=10.0), est=make(model_dir=tmp_path), checkpoint=8, max_steps=9)
    halves = waited(resume="auto")
    assert halves == waited()


class Stream(IterableDataset):
    def __iter__(self):
        return zip(torch.from_numpy(X[:40]), torch.from_numpy(Y[:40]), strict=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_whose_end_is_not_known_is_looked_at_once_where_both_fall_together(workers):
    stopping = EarlyStopping("val_loss", patience=99, min_delta=10.0)
    est = fit(stopping, data=DataLoader(Stream(), batch_size=10), batch_size=None, epochs=2, workers=workers)
    assert [each["step"] for each in est.validations_] == [4, 8]
    assert stopping.waited == 1, "the first look is the best, the second waits"


def test_fitting_again_goes_on_in_the_record():
    est = fit(epochs=1)
    fit(est=est, epochs=1)
    assert [(each["epoch"], each["step"]) for each in est.validations_] == [
        (1, 4), (1, 8), (1, 11), (2, 4), (2, 8), (2, 11),
    ]  # fmt: skip
    assert np.isfinite([each["val_loss"] for each in est.validations_]).all()


def test_bad_requests():
    with pytest.raises(ValueError, match="validate_every= needs validation_data= to validate with"):
        fit(validation_data=None)
    with pytest.raises(ValueError, match="validate_every must be a whole number of at least 1"):
        fit(validate_every=0)
