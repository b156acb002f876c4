"""Small models and data that several tests train."""

import numpy as np
import torch
from torch import nn

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


def weights(estimator):
    return [tensor.numpy().copy() for tensor in estimator.state_["model"].values()]


def assert_same_weights(first, second):
    for ours, theirs in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(ours, theirs)
