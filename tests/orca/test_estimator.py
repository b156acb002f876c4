"""Estimator against the plain PyTorch program, with every way to say what to train."""

import copy
import functools

import numpy as np
import pandas as pd
import pytest
import torch
import torchmetrics
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.core.errors import SeamlineError
from seamline.orca import Estimator, Tuning
from tests.orca.networks import ROWS, accuracy, assert_same_weights, make_network, make_rows, weights

X, Y = make_rows()
BATCH = 20


def estimator(model=None, *, lr=0.1, **options):
    model = model or make_network()
    options.setdefault("loss", nn.CrossEntropyLoss())
    options.setdefault("optimizer", torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9))
    return Estimator.from_torch(model=model, **options)


def fit(est, data=(X, Y), **options):
    return est.fit(data, **{"epochs": 2, "batch_size": BATCH, "verbose": 0, **options})


def plain_loop(
    model, *, epochs=2, lr=0.1, loss_function=nn.functional.cross_entropy, after_backward=lambda model: None
):
    """What the user would have written."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for _ in range(epochs):
        for first in range(0, ROWS, BATCH):
            optimizer.zero_grad()
            x, y = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(Y[first : first + BATCH])
            loss_function(model(x), y).backward()
            after_backward(model)
            optimizer.step()
    return [parameter.detach().numpy() for parameter in model.parameters()]


def assert_close(ours, theirs, atol=1e-6):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def test_one_worker_gives_the_bits_of_the_plain_loop():
    expected = plain_loop(make_network())
    for ours, theirs in zip(weights(fit(estimator(), shuffle=False)), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_two_workers_give_the_weights_of_the_plain_loop():
    assert_close(weights(fit(estimator(), shuffle=False, workers=2)), plain_loop(make_network()))


# Ways to say what to train


def make_with_config(config):
    model = make_network()
    return model if config["width"] == 12 else None


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = make_network()

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "recipe",
    [
        {
            "model": make_network,
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
            "loss": lambda: nn.CrossEntropyLoss(),
        },
        {
            "model": make_with_config,
            "optimizer": lambda model, config: torch.optim.SGD(model.parameters(), config["lr"], momentum=0.9),
            "loss": lambda config: nn.CrossEntropyLoss(),
            "config": {"width": 12, "lr": 0.1},
        },
        {
            "model": Network,
            "optimizer": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
            "loss": nn.CrossEntropyLoss,
        },
        {
            "model": make_network,
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
            "loss": nn.functional.cross_entropy,
        },
    ],
    ids=["functions", "functions of config", "classes", "plain loss"],
)
def test_functions_and_classes_make_what_instances_are(recipe, workers):
    est = fit(Estimator.from_torch(**recipe), shuffle=False, workers=workers)
    assert_close(weights(est), plain_loop(make_network()))
    assert_close([p.detach().numpy() for p in est.get_model().parameters()], plain_loop(make_network()))


@pytest.mark.parametrize("workers", [1, 2])
def test_the_users_own_model_and_optimizer_are_the_trained_ones(workers):
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    est = fit(estimator(model, optimizer=optimizer, scheduler=scheduler), workers=workers)
    assert est.get_model() is model
    assert_close([p.detach().numpy() for p in model.parameters()], weights(est), atol=0)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**2)
    assert scheduler.last_epoch == 2
    assert optimizer.state[model[0].weight]["momentum_buffer"].abs().sum() > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_fitting_again_goes_on(workers):
    whole = fit(estimator(), epochs=4, workers=workers)
    halves = fit(fit(estimator(), workers=workers), workers=workers)
    assert_same_weights(whole, halves)
    assert [epoch["epoch"] for epoch in halves.history_] == [1, 2, 3, 4]


def test_random_numbers_of_the_caller_are_left_alone():
    est = estimator()
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(3).tolist(), np.random.rand(3).tolist()
    torch.manual_seed(5)
    np.random.seed(5)
    fit(est)
    assert (torch.rand(3).tolist(), np.random.rand(3).tolist()) == expected


# Options of the loop


@pytest.mark.parametrize("workers", [1, 2])
def test_accumulating_in_pieces_changes_nothing(workers):
    est = fit(estimator(tuning=Tuning(accumulate=3)), shuffle=False, workers=workers)
    assert_close(weights(est), plain_loop(make_network()))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("tuning", "clip"),
    [
        (Tuning(clip_norm=0.05), lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.05)),
        (Tuning(clip_value=0.01), lambda model: nn.utils.clip_grad_value_(model.parameters(), 0.01)),
        (Tuning(clip_norm=0.05, accumulate=2), lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.05)),
    ],
)
def test_gradients_are_clipped_after_they_were_averaged(tuning, clip, workers):
    est = fit(estimator(tuning=tuning), shuffle=False, workers=workers)
    assert_close(weights(est), plain_loop(make_network(), after_backward=clip))


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0])),
        nn.CrossEntropyLoss(ignore_index=2),
        nn.CrossEntropyLoss(reduction="sum"),
        nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]), label_smoothing=0.1),
    ],
    ids=["class weights", "ignored class", "sum", "smoothed"],
)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_losses_that_count_rows_differently_are_averaged_right(loss, workers, accumulate):
    expected = plain_loop(make_network(), loss_function=loss, lr=0.01)
    est = fit(estimator(loss=loss, lr=0.01, tuning=Tuning(accumulate=accumulate)), shuffle=False, workers=workers)
    assert_close(weights(est), expected, atol=2e-6)
    mean = {"weight": loss.weight, "ignore_index": loss.ignore_index, "label_smoothing": loss.label_smoothing}
    outputs = torch.from_numpy(est.predict(X))
    whole = float(nn.functional.cross_entropy(outputs, torch.from_numpy(Y), **mean))
    assert est.evaluate((X, Y), batch_size=7, workers=workers)["loss"] == pytest.approx(whole, abs=1e-5)


IGNORED = np.where(np.arange(ROWS) % 3 == 0, Y, -100)


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 5.0]))])
def test_ignored_targets_count_nowhere_and_logged_losses_agree(loss):
    one, two = (fit(estimator(loss=loss), (X, IGNORED), workers=workers) for workers in (1, 2))
    assert_close(weights(one), weights(two))
    assert one.history_[1]["loss"] == pytest.approx(two.history_[1]["loss"], abs=1e-6)


def test_the_logged_loss_of_a_sum_is_per_row_on_any_number_of_workers():
    loss = nn.CrossEntropyLoss(reduction="sum")
    one, two = (
        fit(estimator(loss=loss, lr=0.001, tuning=Tuning(accumulate=workers)), workers=workers) for workers in (1, 2)
    )
    assert one.history_[0]["loss"] == pytest.approx(two.history_[0]["loss"], abs=1e-5)
    assert one.history_[0]["loss"] < 3


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("rows", [82, 83])  # a rest of one row is an error of torch's on one worker too
def test_batch_normalisation_trains_with_any_rest_and_validates_as_it_is_saved(rows):
    data = X[:rows], Y[:rows]
    est = fit(estimator(Normalised()), data, workers=2, validation_data=data)
    est.ledger_.check(rows)
    assert est.evaluate(data)["loss"] == pytest.approx(est.history_[-1]["val_loss"], abs=1e-6)


def test_a_worker_without_rows_leaves_no_trace_of_infinity():
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = make_network()

        def forward(self, x):
            return self.layer(x).masked_fill(torch.tensor([False, False, True]), -torch.inf)

    labels = np.minimum(Y, 1)[:21]
    one, two = (fit(estimator(Masked()), (X[:21], labels), workers=workers) for workers in (1, 2))
    assert one.history_[1]["loss"] == pytest.approx(two.history_[1]["loss"], abs=1e-6)
    assert_close(weights(one), weights(two))


class WithSpare(nn.Module):
    """One layer is never used."""

    def __init__(self):
        super().__init__()
        self.used, self.spare = make_network(), nn.Linear(6, 3)

    def forward(self, x):
        return self.used(x)


def test_parameters_that_are_never_used_do_no_harm():
    one, two = (fit(estimator(WithSpare()), workers=workers) for workers in (1, 2))
    assert_close(weights(one), weights(two))


def test_a_frozen_model_part_stays_as_it_was():
    model = make_network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    est = fit(estimator(model), workers=2)
    assert torch.equal(est.get_model()[0].weight, before)


def test_bf16_and_channels_last_train_and_stay_near_fp32():
    torch.manual_seed(0)
    images = torch.randn(40, 3, 8, 8)
    labels = (images.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    losses = {}
    for name, tuning in {"fp32": Tuning(), "bf16": Tuning(precision="bf16", channels_last=True)}.items():
        est = fit(estimator(copy.deepcopy(net), tuning=tuning), (images, labels))
        losses[name] = est.history_[-1]["loss"]
        layout = est.get_model()[0].weight.is_contiguous(memory_format=torch.channels_last)
        assert layout == tuning.channels_last
        assert est.state_["model"]["0.weight"].dtype == torch.float32
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.02)
    assert losses["bf16"] != losses["fp32"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("every", ["step", "epoch"])
def test_a_scheduler_acts_after_each_step_or_epoch(every, workers):
    est = estimator(scheduler=lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9), scheduler_every=every)
    fit(est, epochs=3, workers=workers)
    steps = -(-ROWS // BATCH)
    turns = 3 * steps if every == "step" else 3
    assert est.state_["optimizer"]["param_groups"][0]["lr"] == pytest.approx(0.1 * 0.9**turns)
    assert est.history_[0]["lr"] == pytest.approx(0.1 * 0.9 ** (steps if every == "step" else 0))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_plateau_scheduler_sees_the_validation_loss(workers):
    est = estimator(scheduler=lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, threshold=0.9999))
    fit(est, epochs=3, validation_data=(X, Y), workers=workers)
    assert [epoch["lr"] for epoch in est.history_] == pytest.approx([0.1, 0.1, 0.01])


def test_max_steps_ends_in_the_middle_of_an_epoch():
    est = fit(estimator(), epochs=5, max_steps=8)
    assert est.ledger_.ranges(0) == [(0, ROWS)]
    assert est.ledger_.ranges(1) == [(0, 2 * BATCH)]
    assert len(est.history_) == 2


# Data, metrics, predictions


def test_loaders_arrays_frames_and_functions_train_alike():
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=Y)
    dataset = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    expected = plain_loop(make_network())
    loader = DataLoader(dataset, batch_size=BATCH)
    assert_close(weights(fit(estimator(), loader, batch_size=None, workers=2)), expected)
    assert_close(weights(fit(estimator(), dataset, shuffle=False, workers=2)), expected)
    assert_close(weights(fit(estimator(), lambda: (X, Y), shuffle=False, workers=2)), expected)
    columns = {"feature_cols": [list("abcdef")], "label_cols": ["label"]}
    assert_close(weights(fit(estimator(), frame, shuffle=False, workers=2, **columns)), expected)
    assert_close(weights(fit(estimator(), (X.astype(np.float64), Y), shuffle=False)), expected)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(6, 3)

    def forward(self, left, right):
        scores = self.layer(torch.cat([left, right], 1))
        return {"scores": scores, "parts": (scores.sum(1), scores.max(1).values)}


def scores_loss(outputs, targets):
    return nn.functional.cross_entropy(outputs["scores"], targets)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "inputs", [(X[:, :2], X[:, 2:]), {"right": X[:, 2:], "left": X[:, :2]}], ids=["positions", "keywords"]
)
def test_several_inputs_and_outputs(inputs, workers):
    est = fit(estimator(TwoInputs(), loss=scores_loss), (inputs, Y), workers=workers)
    outputs = est.predict(inputs, batch_size=10, workers=workers)
    assert outputs["scores"].shape == (ROWS, 3)
    np.testing.assert_allclose(outputs["parts"][0], outputs["scores"].sum(1), rtol=1e-5)
    np.testing.assert_array_equal(outputs["parts"][1], outputs["scores"].max(1))


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_metrics_are_those_of_scikit_learn_on_all_predictions(workers):
    x, y = X, (Y > 0).astype(np.int64)
    net = nn.Sequential(make_network(), nn.Linear(3, 2))
    metrics = {
        "acc": accuracy,
        "tm_acc": torchmetrics.classification.MulticlassAccuracy(2, average="micro"),
        "auc": torchmetrics.classification.MulticlassAUROC(2, average="macro", thresholds=None),
    }
    est = fit(estimator(net, metrics=metrics), (x, y))
    found = est.evaluate((x, y), batch_size=10, workers=workers)
    probability = torch.softmax(torch.from_numpy(est.predict(x)).double(), 1).numpy()
    answer = probability.argmax(1)
    assert found["acc"] == pytest.approx(accuracy_score(y, answer), abs=1e-6)
    assert found["tm_acc"] == pytest.approx(accuracy_score(y, answer), abs=1e-6)
    assert found["auc"] == pytest.approx(roc_auc_score(y, probability[:, 1]), abs=1e-6)
    assert found["loss"] == pytest.approx(log_loss(y, probability), abs=1e-6)


def test_fewer_rows_than_workers_are_scored_and_predicted():
    metrics = {"calibration": torchmetrics.classification.MulticlassCalibrationError(3), "acc": accuracy}
    est = estimator(metrics=metrics)
    few = (X[:2], Y[:2])
    assert est.evaluate(few, workers=3) == pytest.approx(est.evaluate(few), abs=1e-6)
    np.testing.assert_allclose(est.predict(X[:2], workers=3), est.predict(X[:2]), atol=1e-6)


def test_a_stream_that_ends_early_on_one_worker_is_an_error_and_not_a_hang():
    class Uneven(torch.utils.data.IterableDataset):
        def __iter__(self):
            rank = torch.distributed.get_rank()
            return iter([(X[i], Y[i]) for i in range(30 + 20 * rank)])

    with pytest.raises(SeamlineError, match="the data ended on 1 of 2 workers"):
        fit(estimator(), DataLoader(Uneven(), batch_size=10), batch_size=None, workers=2)


def test_a_stream_trains_alike_on_any_number_of_workers():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([(X[i], Y[i]) for i in range(ROWS)])

    est = fit(estimator(), DataLoader(Stream(), batch_size=BATCH), batch_size=None, workers=2)
    assert_close(weights(est), plain_loop(make_network()))
    est.ledger_.check(ROWS)


def test_predicting_before_training_uses_one_model_and_touches_nothing_of_the_users():
    est = Estimator.from_torch(model=lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3)))
    rows, before = X.copy(), torch.random.get_rng_state()
    one, two = est.predict(rows), est.predict(rows, batch_size=10, workers=2)
    np.testing.assert_allclose(one, two, atol=1e-6)
    np.testing.assert_array_equal(rows, X)
    est.predict(TensorDataset(torch.from_numpy(X)))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_changes_that_the_user_makes_to_the_trained_model_count():
    est = fit(estimator(), workers=2)
    with torch.no_grad():
        est.get_model()[0].weight.zero_()
        est.get_model()[0].bias.zero_()
    assert np.ptp(est.predict(X), axis=0).max() == 0


def test_what_a_model_keeps_from_predicting_can_be_used_in_training():
    class Caching(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.scale = make_network(), None

        def forward(self, x):
            self.scale = torch.ones(6) * 2 if self.scale is None else self.scale
            return self.layer(x * self.scale)

    est = estimator(Caching())
    est.predict(X)
    assert len(fit(est).history_) == 2


def test_outputs_that_are_not_rows_are_named():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 4, batch_first=True)

        def forward(self, x):
            return self.lstm(x[:, None])

    with pytest.raises(ValueError, match=r"output\[1\]\[0\] has shape \(1, 32, 4\) for 32 rows"):
        Estimator.from_torch(model=Recurrent()).predict(X[:96], batch_size=32)


def test_labels_of_any_integer_type_and_bfloat16_inputs_are_read():
    est = fit(estimator(), (torch.from_numpy(X).bfloat16(), Y.astype(np.int32)))
    assert len(est.history_) == 2


# Saving


def test_a_save_is_readable_by_other_tools_and_replaces_an_earlier_one(tmp_path):
    from safetensors.numpy import load_file

    est = fit(estimator())
    est.save(tmp_path / "saved")
    fit(est).save(tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    assert_close([tensors[name] for name in est.state_["model"]], weights(est), atol=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    with pytest.raises(SeamlineError, match="exists and was not saved by Seamline"):
        est.save(tmp_path / "mine")


def test_a_loaded_estimator_trains_on_as_if_it_had_never_stopped(tmp_path):
    whole = fit(estimator(), epochs=4)
    fit(estimator()).save(tmp_path / "half")
    assert_same_weights(fit(estimator().load(tmp_path / "half")), whole)


def test_tied_weights_and_odd_state_survive(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
            self.b.weight = self.a.weight
            self.head = nn.Linear(6, 3)
            self.register_buffer("empty", torch.zeros(0))

        def forward(self, x):
            return self.head(self.b(torch.relu(self.a(x))))

    est = fit(estimator(Tied()), workers=2)
    est.save(tmp_path / "tied")
    loaded = estimator(Tied()).load(tmp_path / "tied")
    np.testing.assert_array_equal(loaded.predict(X), est.predict(X))
    assert loaded.get_model().a.weight is loaded.get_model().b.weight
