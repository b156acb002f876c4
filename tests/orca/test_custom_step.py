"""A step of the user's own in the place of forward pass and loss, against the loop that the user would have written."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.core.errors import WorkerError
from seamline.orca import Estimator, Tuning
from tests.orca.networks import ROWS, accuracy, assert_same_weights, make_network, make_rows, weights

X, Y = make_rows()
BATCH = 40
"""The last batch has 23 rows: three workers have 8, 8 and 7 of them."""


def contrast(model, batch):
    """Two forward passes and a part of the model alone, which no loss of outputs and targets could say."""
    x, y = batch
    both = model(x) + 0.5 * model(-x)
    hidden = model[0](x)
    loss = nn.functional.cross_entropy(both, y) + 0.01 * hidden.pow(2).mean()
    return {"loss": loss, "hits": accuracy(both, y), "size": hidden.abs().mean()}


def fit(step=contrast, *, tuning=None, loss=None, metrics=None, data=(X, Y), **options):
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    est = Estimator.from_torch(
        model=model, optimizer=optimizer, train_step=step, tuning=tuning, loss=loss, metrics=metrics
    )
    return est.fit(data, **{"epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0, **options})


def plain_loop(after_backward=lambda model: None):
    """What the user would have written, with the means that they would have taken."""
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    history = []
    for _ in range(2):
        sums = dict.fromkeys(("loss", "hits", "size"), 0.0)
        for first in range(0, ROWS, BATCH):
            x, y = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(Y[first : first + BATCH])
            optimizer.zero_grad()
            found = contrast(model, (x, y))
            found["loss"].backward()
            after_backward(model)
            optimizer.step()
            for name in sums:
                sums[name] += float(found[name].detach()) * len(x) / ROWS
        history.append(sums)
    return [parameter.detach().numpy() for parameter in model.parameters()], history


def assert_learned(est, expected):
    parameters, history = expected
    for ours, theirs in zip(weights(est), parameters, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    for ours, theirs in zip(est.history_, history, strict=True):
        assert {name: ours[name] for name in theirs} == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_it_learns_what_the_plain_loop_does_and_reports_means_over_rows(workers):
    assert_learned(fit(workers=workers), plain_loop())


@pytest.mark.parametrize("workers", [1, 2])
def test_accumulating_and_clipping_stay_as_they_are(workers):
    """Means over rows of pieces are those of the batch; the gradient is clipped when it is whole."""
    clipped = plain_loop(lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.05))
    est = fit(workers=workers, tuning=Tuning(accumulate=3, clip_norm=0.05))
    for ours, theirs in zip(weights(est), clipped[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_a_worker_without_rows_changes_nothing():
    """103 rows in batches of 51: the last batch is a single row, which one worker has."""
    one, three = (fit(workers=workers, batch_size=51) for workers in (1, 3))
    for ours, theirs in zip(weights(one), weights(three), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    assert three.history_[1]["hits"] == pytest.approx(one.history_[1]["hits"], abs=1e-6)
    three.ledger_.check(ROWS)


def test_deterministic_gives_the_same_bits_on_any_number_of_workers():
    one, two = (fit(workers=workers, deterministic=True) for workers in (1, 2))
    assert_same_weights(one, two)
    assert one.history_ == two.history_


class Partly(nn.Module):
    """Has a layer that the step does not use, and one that only the step uses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.used, self.unused = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x):
        return self.unused(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_step_may_leave_parameters_out(workers):
    def step(model, batch):
        return nn.functional.cross_entropy(model.used(batch[0]), batch[1])

    est = Estimator.from_torch(
        model=Partly, optimizer=lambda model: torch.optim.AdamW(model.parameters(), 0.1), train_step=step
    )
    est.fit((X, Y), batch_size=BATCH, workers=workers, verbose=0)
    fresh, learned = Partly(), est.get_model()
    assert torch.equal(learned.unused.weight, fresh.unused.weight)
    assert not torch.equal(learned.used.weight, fresh.used.weight)


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_loss_the_step_scores_and_with_one_the_loss_does(workers):
    est = fit(workers=workers, validation_data=(X, Y), metrics={"accuracy": accuracy})
    model = est.get_model().eval()
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    with torch.no_grad():
        found, outputs = contrast(model, (x, y)), model(x)
    expected = {"val_hits": float(found["hits"]), "val_size": float(found["size"])}
    assert {name: est.history_[-1][name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert est.history_[-1]["val_accuracy"] == pytest.approx(float(accuracy(outputs, y)), abs=1e-6)
    scores = est.evaluate((X, Y), batch_size=ROWS, workers=workers)
    assert scores["hits"] == pytest.approx(float(found["hits"]), abs=1e-6)

    scored = fit(workers=workers, loss=nn.CrossEntropyLoss()).evaluate((X, Y), workers=workers)
    assert scored == {"loss": pytest.approx(float(nn.functional.cross_entropy(outputs, y)), abs=1e-5)}


def test_a_run_goes_on_in_the_middle_of_an_epoch_with_the_same_means(tmp_path):
    def run(**options):
        model = make_network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        est = Estimator.from_torch(model=model, optimizer=optimizer, train_step=contrast, model_dir=tmp_path)
        return est.fit((X, Y), batch_size=BATCH, epochs=2, verbose=0, **options)

    run(max_steps=2)
    halves, whole = run(resume="auto"), run()
    assert_same_weights(halves, whole)
    assert halves.history_ == [pytest.approx(epoch) for epoch in whole.history_]


@pytest.mark.parametrize("columns", [1, 3])
def test_items_of_a_loader_come_as_inputs_and_targets(columns):
    seen = []

    def step(model, batch):
        seen.append(batch)
        inputs, _ = batch
        return model(inputs[0] if columns == 3 else inputs).mean()

    tensors = [torch.from_numpy(X), torch.from_numpy(X) * 2, torch.from_numpy(Y)][:columns]
    fit(step, data=DataLoader(TensorDataset(*tensors), batch_size=ROWS), batch_size=None, epochs=1)
    inputs, targets = seen[0]
    if columns == 1:
        assert targets is None
        np.testing.assert_array_equal(inputs.numpy(), X)
    else:
        np.testing.assert_array_equal(inputs[1].numpy(), X * 2)
        np.testing.assert_array_equal(targets.numpy(), Y)


# What a step may do wrong


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (lambda model, batch: None, TypeError, "train_step returned nothing; return the mean loss of the batch"),
        (lambda model, batch: {"hits": 1}, TypeError, "train_step returned a dict without 'loss'; return the mean"),
        (lambda model, batch: 0.5, TypeError, "train_step returned float; return the mean loss"),
        (lambda model, batch: model(batch[0]), ValueError, r"the loss of train_step has shape \(40, 3\), not one"),
        (
            lambda model, batch: model(batch[0]).mean().detach(),
            ValueError,
            "the loss of train_step depends on no parameter that is trained",
        ),
        (
            lambda model, batch: {"loss": model(batch[0]).mean(), "hits": torch.ones(3)},
            TypeError,
            "'hits' is Tensor instead of one number",
        ),
        (
            lambda model, batch: {"loss": model(batch[0]).mean(), "lr": 0.1},
            ValueError,
            "'lr' is a name of every epoch's record; report your number under another",
        ),
        ("train", TypeError, "train_step must be a function of the model and a batch, but got 'train'"),
        (lambda model: 0, TypeError, r"train_step is called as train_step\(model, batch\), which this one does not"),
    ],
)
def test_a_step_that_is_wrong_is_told_what_is_wanted(step, kind, message):
    with pytest.raises((kind, WorkerError), match=message):
        fit(step)


def test_weights_are_refused_where_there_is_no_loss_to_multiply():
    with pytest.raises(ValueError, match="weights of rows multiply the loss= of each row, and this estimator has none"):
        fit(class_weight={0: 1.0, 1: 2.0, 2: 3.0})


def test_a_step_needs_an_optimizer():
    est = Estimator.from_torch(model=make_network(), train_step=contrast)
    with pytest.raises(ValueError, match="optimizer is missing"):
        est.fit((X, Y), verbose=0)
