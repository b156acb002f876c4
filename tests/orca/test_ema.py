"""A moving average of the weights, against torch's own in a plain loop."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import Callback, ModelCheckpoint
from tests.orca.networks import ROWS, assert_same_weights, make_rows, weights

X, Y = make_rows()
BATCH, DECAY = 40, 0.8


def make_network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 3))


def make(model=None, ema=DECAY, norm=True, **options):
    model = model or make_network()
    if not norm:
        model[1] = nn.Identity()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return Estimator.from_torch(
        model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), tuning=Tuning(ema=ema), **options
    )


def fit(est, **options):
    return est.fit((X, Y), **{"epochs": 2, "batch_size": BATCH, "shuffle": False, "verbose": 0, **options})


def plain_loop(epochs=2, norm=True):
    """The averaged model and the one in training, as the user would keep them with torch."""
    model = make_network()
    if not norm:
        model[1] = nn.Identity()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for first in range(0, ROWS, BATCH):
            x, y = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(Y[first : first + BATCH])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            averaged.update_parameters(model)
    averaged.module.load_state_dict({**averaged.module.state_dict(), **dict(model.named_buffers())})
    return averaged.module, model


def assert_close(ours, theirs, atol=1e-6):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


def numbers(model):
    return [tensor.detach().numpy() for tensor in model.state_dict().values()]


def test_the_average_is_torchs_own_and_buffers_are_those_of_the_model_in_training():
    est = fit(make(), validation_data=(X, Y))
    averaged, trained = plain_loop()
    assert_close(weights(est), numbers(averaged))
    assert_close(est.state_["averaged"]["weights"].values(), [p.detach().numpy() for p in trained.parameters()])
    with torch.no_grad():
        expected = averaged.eval()(torch.from_numpy(X))
    assert_close([est.predict(X)], [expected.numpy()], atol=1e-5)
    loss = float(nn.functional.cross_entropy(expected, torch.from_numpy(Y)))
    assert est.history_[-1]["val_loss"] == pytest.approx(loss, abs=1e-5)
    assert est.evaluate((X, Y))["loss"] == pytest.approx(loss, abs=1e-5)


def test_two_workers_average_what_one_does():
    expected = plain_loop(norm=False)[0]
    assert_close(weights(fit(make(norm=False), workers=2)), numbers(expected), atol=1e-5)


def test_the_users_own_model_is_the_averaged_one_and_fitting_again_goes_on_from_behind_it():
    model = make_network()
    est = fit(fit(make(model), epochs=1), epochs=1)
    assert est.get_model() is model
    averaged = plain_loop()[0]
    assert_close(numbers(model), numbers(averaged))
    assert_close(weights(est), numbers(averaged))


def test_a_model_that_the_user_has_changed_is_where_training_goes_on(tmp_path):
    """The average begins anew there: after one step it is the weights themselves."""
    changed = fit(make(norm=False), epochs=1)
    changed.save(tmp_path / "saved")
    plain = make(norm=False, ema=None).load(tmp_path / "saved")
    for est in (changed, plain):
        with torch.no_grad():
            for parameter in est.get_model().parameters():
                parameter.fill_(0.1)
        fit(est, max_steps=1)
    assert_same_weights(changed, plain)


def test_what_is_saved_loads_with_its_average(tmp_path):
    est = fit(make(), epochs=1)
    est.save(tmp_path / "saved")
    loaded = make().load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.predict(X), est.predict(X))
    assert_close(weights(fit(loaded, epochs=1)), numbers(plain_loop()[0]))
    plain = make(ema=None).load(tmp_path / "saved")
    np.testing.assert_array_equal(plain.predict(X), est.predict(X))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_goes_on_in_the_middle_of_an_epoch(tmp_path, workers):
    fit(make(model_dir=tmp_path), max_steps=4, workers=workers)
    halves = fit(make(model_dir=tmp_path), resume="auto", workers=workers)
    assert_same_weights(halves, fit(make(), workers=workers))


def test_the_best_model_is_an_averaged_one(tmp_path):
    fit(make(), epochs=2, validation_data=(X, Y), callbacks=[ModelCheckpoint(tmp_path / "best", monitor="val_loss")])
    assert make().load(tmp_path / "best").evaluate((X, Y))["loss"] == pytest.approx(
        fit(make(), validation_data=(X, Y)).history_[-1]["val_loss"], abs=1e-6
    )


def test_deterministic_gives_the_same_bits_on_any_number_of_workers():
    one, two = (fit(make(), deterministic=True, workers=workers, validation_data=(X, Y)) for workers in (1, 2))
    assert_same_weights(one, two)
    assert one.history_ == two.history_


class Thaw(Callback):
    everywhere = True

    def on_fit_begin(self, run):
        run.model[0].requires_grad_(False)

    def on_epoch_begin(self, run):
        run.model[0].requires_grad_(run.epoch > 0)


def test_a_layer_that_is_thawed_late_is_averaged_from_then_on():
    est = fit(make(norm=False), callbacks=[Thaw()])
    model = make_network()
    model[1] = nn.Identity()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        model[0].requires_grad_(epoch > 0)
        for first in range(0, ROWS, BATCH):
            x, y = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(Y[first : first + BATCH])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            averaged.update_parameters(model)
    assert_close(weights(est), numbers(averaged.module))


@pytest.mark.parametrize("decay", [0.0, 1.0, -0.5, 2])
def test_a_decay_outside_of_its_range_is_refused(decay):
    with pytest.raises(ValueError, match=f"`0 < ema < 1` must hold, but got ema={decay}"):
        Tuning(ema=decay)
