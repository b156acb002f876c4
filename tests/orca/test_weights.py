"""Rows that count differently: class weights, sample weights and a column of weights, against plain torch."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from seamline.core.errors import DataError
from seamline.orca import Estimator, Tuning, XShards
from tests.orca.networks import ROWS, assert_same_weights, make_network, make_rows, weights

X, Y = make_rows()
BATCH = 40
W = np.random.default_rng(5).uniform(0, 3, ROWS).astype(np.float32)
W[::7] = 0.0
CLASSES = {0: 0.2, 1: 1.0, 2: 3.0}
PER_CLASS = np.array([0.2, 1.0, 3.0], np.float32)


def fit(data=(X, Y), *, loss=None, tuning=None, model=None, **options):
    model = model or make_network()
    est = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        loss=loss or nn.CrossEntropyLoss(),
        tuning=tuning,
    )
    return est.fit(data, **{"epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0, **options})


def plain_loop(w, each=lambda outputs, y: nn.functional.cross_entropy(outputs, y, reduction="none"), y=Y, model=None):
    """Each batch's sum of weighted losses over the sum of its weights, written by hand."""
    model = model or make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    history = []
    for _ in range(2):
        total = 0.0
        for first in range(0, ROWS, BATCH):
            x, targets, mine = (torch.from_numpy(part[first : first + BATCH]) for part in (X, y, w))
            optimizer.zero_grad()
            weighted = (each(model(x), targets) * mine).sum()
            (weighted / mine.sum()).backward()
            optimizer.step()
            total += float(weighted.detach())
        history.append(total / w.sum())
    return [parameter.detach().numpy() for parameter in model.parameters()], history


def assert_learned(est, expected, atol=2e-6):
    for ours, theirs in zip(weights(est), expected[0], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)
    assert [epoch["loss"] for epoch in est.history_] == pytest.approx(expected[1], abs=1e-5)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_sample_weights_are_a_weighted_mean_over_the_whole_batch(workers):
    assert_learned(fit(workers=workers, sample_weight=W), plain_loop(W))


@pytest.mark.parametrize("workers", [1, 2])
def test_class_weights_are_those_of_the_loss(workers):
    est = fit(workers=workers, class_weight=CLASSES)
    assert_learned(est, plain_loop(PER_CLASS[Y]))
    built_in = fit(workers=workers, loss=nn.CrossEntropyLoss(weight=torch.from_numpy(PER_CLASS)))
    for ours, theirs in zip(weights(est), weights(built_in), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("workers", [1, 2])
def test_all_kinds_of_weights_multiply(workers):
    loss = nn.CrossEntropyLoss(weight=torch.tensor([2.0, 1.0, 0.5]))
    est = fit(workers=workers, loss=loss, sample_weight=W, class_weight=CLASSES, tuning=Tuning(accumulate=2))
    of_loss = np.array([2.0, 1.0, 0.5], np.float32)[Y]
    assert_learned(est, plain_loop(W * PER_CLASS[Y] * of_loss))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_functional_loss_and_one_without_reduction_can_be_weighed(workers):
    expected = plain_loop(W)
    assert_learned(fit(workers=workers, loss=nn.functional.cross_entropy, sample_weight=W), expected)

    def each(outputs, targets):
        return -outputs.log_softmax(1).gather(1, targets[:, None])[:, 0]

    assert_learned(fit(workers=workers, loss=each, sample_weight=W), expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_binary_targets_have_classes_too(workers):
    y = (Y == 1).astype(np.float32)[:, None]

    def network():
        torch.manual_seed(4)
        return nn.Linear(6, 1)

    def each(outputs, targets):
        return nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")[:, 0]

    est = fit((X, y), model=network(), loss=nn.BCEWithLogitsLoss(), class_weight={0: 1.0, 1: 5.0}, workers=workers)
    assert_learned(est, plain_loop(np.where(y[:, 0] == 1, 5.0, 1.0).astype(np.float32), each, y, network()))


def frame():
    columns = {f"x{n}": X[:, n] for n in range(6)}
    return pd.DataFrame({**columns, "y": Y, "w": W})


NAMES = {"feature_cols": [[f"x{n}" for n in range(6)]], "label_cols": ["y"], "weight_col": "w"}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "table",
    [
        frame,
        lambda: pa.Table.from_pandas(frame()),
        lambda: {name: column.to_numpy() for name, column in frame().items()},
        lambda: XShards.partition(frame(), num_shards=3),
    ],
    ids=["pandas", "arrow", "dict", "xshards"],
)
def test_a_column_of_a_table_weighs_its_rows(table, workers):
    validation = frame().drop(columns="w")
    est = fit(table(), workers=workers, validation_data=validation, **NAMES)
    assert_learned(est, plain_loop(W))
    outputs = torch.from_numpy(est.predict(X))
    plain = float(nn.functional.cross_entropy(outputs, torch.from_numpy(Y)))
    assert est.history_[-1]["val_loss"] == pytest.approx(plain, abs=1e-5), "validation counts every row alike"


def test_a_table_read_in_windows_keeps_weights_with_their_rows():
    """Too little memory to hold it: rows are shuffled by windows, and the sum of losses tells whether weights moved."""
    windowed = fit(pa.Table.from_pandas(frame()), memory=2000, shuffle=True, **NAMES)
    elsewhere = fit(pa.Table.from_pandas(frame()), memory=2000, shuffle=True, workers=2, **NAMES)
    for ours, theirs in zip(weights(windowed), weights(elsewhere), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    in_order = fit(pa.Table.from_pandas(frame()), memory=2000, **NAMES)
    assert_learned(in_order, plain_loop(W))


def test_deterministic_gives_the_same_bits_on_any_number_of_workers():
    one, two = (fit(workers=n, deterministic=True, sample_weight=W, class_weight=CLASSES) for n in (1, 2))
    assert_same_weights(one, two)
    assert one.history_ == two.history_
    expected = plain_loop(W * PER_CLASS[Y])
    assert_learned(one, expected, atol=1e-5)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_batch_that_weighs_nothing_teaches_nothing(workers):
    nothing_first = W.copy()
    nothing_first[:BATCH] = 0.0
    est = fit(workers=workers, sample_weight=nothing_first, epochs=1, max_steps=1)
    for ours, theirs in zip(weights(est), make_network().state_dict().values(), strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_sums_is_not_divided(workers):
    est = fit(loss=nn.MSELoss(reduction="sum"), data=(X, X[:, :3]), sample_weight=W / 1000, workers=workers)
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        for first in range(0, ROWS, BATCH):
            x, w = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(W[first : first + BATCH]) / 1000
            optimizer.zero_grad()
            ((model(x) - x[:, :3]).pow(2) * w[:, None]).sum().backward()
            optimizer.step()
    for ours, theirs in zip(weights(est), model.state_dict().values(), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=0, atol=2e-6)


def test_weights_stay_with_their_rows_where_features_of_a_frozen_part_are_kept():
    def learned(cache):
        model = make_network()
        model[0].requires_grad_(False)
        return weights(fit(model=model, sample_weight=W, shuffle=True, tuning=Tuning(cache_frozen=cache), epochs=3))

    for ours, theirs in zip(learned(True), learned(False), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


def test_weights_of_one_change_nothing():
    for ours, theirs in zip(weights(fit(sample_weight=np.ones(ROWS))), weights(fit()), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)


# What cannot be weighed


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"sample_weight": -W}, ValueError, "sample_weight must be finite and not negative, and not all of it 0"),
        ({"sample_weight": W * 0}, ValueError, "not all of it 0"),
        ({"sample_weight": np.full(ROWS, np.nan)}, ValueError, "sample_weight must be finite"),
        ({"sample_weight": W[:5]}, ValueError, "sample_weight has 5 entries for 103 rows"),
        ({"sample_weight": W[:, None]}, ValueError, r"a number for each row, but has shape \(103, 1\) of float32"),
        ({"sample_weight": W, "weight_col": "w"}, ValueError, "both say what rows weigh; give one"),
        ({"weight_col": "w"}, TypeError, "weight_col= names a column, and the data is arrays; arrays take sample_"),
        ({"class_weight": "balanced"}, TypeError, r"class_weight is a dict such as \{0: 1.0, 1: 5.0\}, but got 'bal"),
        ({"class_weight": {"a": 1.0}}, TypeError, "class_weight names classes .* by numbers, but got 'a'"),
        ({"class_weight": {0: -1.0}}, ValueError, r"class_weight\[0\] must be a number of 0 or more, but is -1.0"),
        ({"class_weight": {0: 1.0, 1: 2.0}}, DataError, "class 2 has no weight; class_weight names 0, 1: give every"),
        (
            {"sample_weight": W, "loss": lambda outputs, targets: outputs.mean()},
            TypeError,
            r"weights need the loss of each of 40 rows, and <lambda> gave \(\); give a loss of torch",
        ),
    ],
)
def test_bad_weights(options, kind, message):
    with pytest.raises(kind, match=message):
        fit(**options)


def test_sample_weights_go_with_arrays_alone():
    with pytest.raises(TypeError, match=r"sample_weight= goes with arrays \(x, y\), and the data is a DataFrame"):
        fit(frame(), sample_weight=W, feature_cols=["x0"], label_cols=["y"])


def test_a_bad_column_of_weights_is_named():
    with pytest.raises(ValueError, match="no column 'weight'"):
        fit(frame(), **{**NAMES, "weight_col": "weight"})
    with pytest.raises(DataError, match="a row has a negative weight, or one that is no number"):
        fit(frame().assign(w=-1.0), **NAMES)


def test_several_targets_have_no_class():
    y = np.stack([Y, Y], 1).astype(np.float32)
    with pytest.raises(DataError, match=r"class_weight needs one class for each row, and the targets are \(40, 2\)"):
        fit((X, y), loss=nn.MSELoss(), class_weight={0: 1.0})
