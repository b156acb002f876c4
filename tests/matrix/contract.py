"""What fit, evaluate and predict owe with every kind of data on one engine, as tests to inherit."""

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss
from torch import nn

from seamline.orca import Estimator
from tests.matrix.kinds import BATCH, KINDS, ROWS, X, Y
from tests.orca.networks import accuracy, assert_same_weights, make_network, weights


class Network(nn.Module):
    """Takes its input by place or by name."""

    def __init__(self, dropout):
        super().__init__()
        self.layers = make_network(dropout)

    def forward(self, x):
        return self.layers(x)


def train(data=(X, Y), *, dropout=0.3, **options):
    """With everything that could make a difference: dropout, momentum, a shuffled order, a short batch."""
    model = Network(dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    estimator = Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), metrics=[accuracy])
    return estimator.fit(data, **{"epochs": 2, "batch_size": BATCH, "verbose": 0, **options})


class MatrixContract:
    """Inherit, open the engine in a fixture ``engine``, and say which ``kinds`` of data it reads."""

    kinds = ()

    def pytest_generate_tests(self, metafunc):
        if "kind" in metafunc.fixturenames:
            metafunc.parametrize("kind", self.kinds, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, engine, kind, tmp_path_factory):
        return KINDS[kind].make(tmp_path_factory.mktemp("data"))

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, kind, data):
        return train(data, workers=2, **KINDS[kind].settings)

    @pytest.fixture(scope="class")
    @classmethod
    def scores(cls, kind, data, trained):
        """What is predicted for each row, in the order of rows."""
        asked = KINDS[kind]
        return asked.scores(trained.predict(asked.inputs(data), workers=2, **asked.settings_to_predict))

    def test_it_learns_to_the_bit_what_local_processes_learn_from_arrays(self, trained, learned_here):
        assert_same_weights(trained, learned_here.by_two)
        assert [epoch["loss"] for epoch in trained.history_] == [e["loss"] for e in learned_here.by_two.history_]
        trained.ledger_.check(ROWS)

    def test_every_row_is_answered_in_its_place(self, trained, scores):
        model = trained.get_model().eval()
        with torch.no_grad():
            np.testing.assert_allclose(scores, model(torch.from_numpy(X)).numpy(), rtol=0, atol=1e-6)

    def test_metrics_are_those_of_scikit_learn_on_all_predictions(self, kind, data, trained, scores):
        found = trained.evaluate(data, workers=2, **KINDS[kind].settings)
        chances = torch.softmax(torch.from_numpy(np.array(scores)).double(), 1).numpy()
        expected = {"loss": log_loss(Y, chances), "accuracy": accuracy_score(Y, chances.argmax(1))}
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.usefixtures("engine")
class WorkersContract:
    """What any number of workers owes on one engine; two of them have every kind of data to learn from."""

    def test_three_workers_learn_the_bits_of_one_if_asked_to(self, learned_here):
        assert_same_weights(train(workers=3, deterministic=True), learned_here.deterministic)

    @pytest.mark.parametrize("workers", [1, 3, 4])
    def test_other_numbers_of_workers_learn_what_one_would(self, workers, learned_here):
        assert_learns_what_one_would(workers, learned_here)


def assert_learns_what_one_would(workers, learned_here):
    """To the bit what as many local processes learn."""
    ours = train(workers=workers, dropout=0.0)
    assert_same_weights(ours, learned_here.by(workers))
    for mine, alone in zip(weights(ours), weights(learned_here.by(1)), strict=True):
        np.testing.assert_allclose(mine, alone, rtol=0, atol=1e-5)
