"""Small models and data that several tests train."""

import numpy as np
import torch
from torch import nn

from seamline.orca import Estimator

ROWS = 103


def make_rows(rows=ROWS):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(rows, 6)).astype(np.float32)
    return x, (x @ generator.normal(size=(6, 3))).argmax(1).astype(np.int64)


def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def make_network(dropout=0.0):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Dropout(dropout), nn.Linear(12, 3))


def make_estimator(model_dir=None):
    """With what makes a step depend on all before it: dropout and momentum."""
    model = make_network(dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), model_dir=model_dir)


def weights(estimator):
    return [tensor.numpy().copy() for tensor in estimator.state_["model"].values()]


def assert_same_weights(first, second):
    for ours, theirs in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def assert_as_undisturbed(survivor, undisturbed):
    assert_same_weights(survivor, undisturbed)
    assert survivor.history_ == undisturbed.history_
    survivor.ledger_.check(ROWS)
