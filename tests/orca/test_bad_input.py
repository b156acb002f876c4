"""Bad input gets one clear sentence, and nothing starts."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.core import registry
from seamline.core.errors import NonFiniteLossError, SeamlineError, UnpicklableError, WorkerError
from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import StopOnNaN
from tests.orca.networks import make_network, make_rows

X, Y = make_rows()


@pytest.fixture
def _nothing_may_start(monkeypatch):
    def start(name):
        raise AssertionError("something was started")

    monkeypatch.setattr(registry, "engine", start)


def make(**options):
    model = options.pop("model", None) or make_network()
    options = {"optimizer": lambda m: torch.optim.SGD(m.parameters(), 0.1), "loss": nn.CrossEntropyLoss(), **options}
    return Estimator.from_torch(model=model, **options)


@pytest.mark.usefixtures("_nothing_may_start")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 3, "workers": 4}, "batch_size=3 is smaller than workers=4; every worker needs at least one"),
        ({"workers": 0}, "workers must be a whole number of at least 1, but got workers=0"),
        ({"workers": 1.5}, "workers must be a whole number of at least 1, but got workers=1.5"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"batch_size": -1}, "batch_size must be a whole number of at least 1"),
        ({"data": (X, Y[:-3])}, "all arrays need the same number of rows, but x has 103, y has 100"),
        ({"data": {"a": X, "y": Y}, "feature_cols": ["b"], "label_cols": ["y"]}, "no column 'b'; there are 'a', 'y'"),
        ({"validation_data": (X, Y[:5])}, "but x has 103, y has 5"),
        (
            {"data": DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=2), "batch_size": None, "workers": 4},
            "batch_size=2 is smaller than workers=4",
        ),
        (
            {"data": DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=8), "batch_size": 16},
            "batch_size=16, but the data comes in batches of 8",
        ),
    ],
)
def test_bad_arguments_of_fit(options, message):
    arguments = {"data": (X, Y), "batch_size": 10, "verbose": 0, **options}
    with pytest.raises(ValueError, match=message):
        make().fit(arguments.pop("data"), **arguments)


@pytest.mark.usefixtures("_nothing_may_start")
@pytest.mark.parametrize(
    ("recipe", "kind", "message"),
    [
        (
            {"model": 5},
            TypeError,
            "model must be a torch.nn.Module or a function that makes one, but got 5 of type int",
        ),
        ({"optimizer": None}, ValueError, "optimizer is missing"),
        ({"loss": None}, ValueError, "loss is missing"),
        ({"optimizer": "adam"}, TypeError, "optimizer must be a torch.optim.Optimizer or a function of the model"),
        ({"loss": "mse"}, TypeError, "loss must be a function of outputs and targets, but got 'mse'"),
        ({"optimizer": torch.optim.LBFGS(make_network().parameters())}, ValueError, "LBFGS computes the loss several"),
        (
            {"metrics": [lambda o, t: 0, lambda o, t: 1]},
            ValueError,
            "several metrics are named '<lambda>'; give a dict",
        ),
        ({"metrics": ["accuracy"]}, TypeError, "give a function of .* or a torchmetrics metric"),
        (
            {"optimizer": torch.optim.SGD(make_network().parameters(), 0.1)},
            ValueError,
            "the optimizer holds no parameter of this model",
        ),
        (
            {"model": make_network, "optimizer": torch.optim.SGD(make_network().parameters(), 0.1)},
            TypeError,
            "the optimizer is an instance, but the model is a function",
        ),
    ],
)
def test_bad_recipes(recipe, kind, message):
    with pytest.raises(kind, match=message):
        make(**recipe).fit((X, Y), verbose=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp7"}, "no precision 'fp7'; there are 'fp32' and 'bf16'"),
        ({"accumulate": 0}, "`accumulate >= 1` must hold, but got accumulate=0"),
        ({"clip_norm": -1.0}, "`clip_norm > 0` must hold, but got clip_norm=-1.0"),
    ],
)
def test_bad_tuning(options, message):
    with pytest.raises(ValueError, match=message):
        Tuning(**options)


def test_an_unknown_sync():
    with pytest.raises(ValueError, match="no sync named 'gossip'; there are allreduce"):
        make(sync="gossip")


def test_a_function_that_returns_no_model():
    with pytest.raises(TypeError, match="the model function returned 'a model' of type str"):
        make(model=lambda: "a model").fit((X, Y), verbose=0)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_no_number_stops_the_run_if_asked(workers):
    poisoned = X.copy()
    poisoned[60] = np.nan
    options = {"batch_size": 10, "shuffle": False, "verbose": 0, "workers": workers}
    with pytest.raises(NonFiniteLossError, match="the loss is nan in epoch 1, step 7, on worker 0; try a smaller"):
        make().fit((poisoned, Y), callbacks=[StopOnNaN()], **options)
    assert np.isnan(make().fit((poisoned, Y), **options).history_[0]["loss"])


def test_an_error_of_the_users_program_is_shown_as_it_is():
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 50

        def __getitem__(self, row):
            if row == 33:
                raise KeyError("no file for row 33")
            return X[row], Y[row]

    with pytest.raises(KeyError, match="no file for row 33"):
        make().fit(Broken(), batch_size=10, shuffle=False, verbose=0)
    with pytest.raises(WorkerError, match="no file for row 33") as caught:
        make().fit(Broken(), batch_size=10, shuffle=False, workers=2, verbose=0)
    assert caught.value.rank == 0
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_model_that_cannot_travel_is_named():
    model = make_network()
    model.socket = __import__("threading").Lock()
    with pytest.raises(UnpicklableError, match="lock"):
        make(model=model).fit((X, Y), workers=2, verbose=0)


def test_nothing_to_save_yet(tmp_path):
    with pytest.raises(SeamlineError, match="nothing to save yet; call fit or load first"):
        make().save(tmp_path / "x")


@pytest.mark.parametrize("data", [X, [X, Y]], ids=["inputs alone", "a list"])
def test_data_without_targets(data):
    with pytest.raises(TypeError, match=r"give a tuple \(x, y\)"):
        make().fit(data, verbose=0)


def test_a_word_in_an_error_does_not_make_it_a_lost_peer():
    class Gloomy(torch.utils.data.Dataset):
        def __len__(self):
            return 50

        def __getitem__(self, row):
            raise RuntimeError("gloomy row, Connection closed by peer")

    with pytest.raises(WorkerError, match="gloomy row"):
        make().fit(Gloomy(), batch_size=10, workers=2, verbose=0)


def test_a_metric_that_is_no_number():
    with pytest.raises(TypeError, match="metric 'confusion' gave Tensor instead of one number"):
        make(metrics={"confusion": _confusion}).evaluate((X, Y))


def _confusion(outputs, targets):
    return outputs


_confusion.__name__ = "confusion"
