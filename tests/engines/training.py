"""One small training run for every engine, and what two local processes learn in it."""

import functools

import pytest
import torch
from torch import nn

from seamline.engines.local import LocalEngine
from seamline.orca import Estimator, estimator
from tests.orca.networks import assert_same_weights, make_network, make_rows


def train(engine, monkeypatch):
    """Two workers on this engine, with everything that could make a difference: dropout, momentum, a shuffled order."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def launch(task, shards, listen=None, replace=None):
        return engine.run(task, shards, listen=listen, replace=replace)

    monkeypatch.setattr(estimator, "launch", launch)
    model = make_network(dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    return Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss()).fit(
        make_rows(), epochs=2, batch_size=10, workers=2, verbose=0
    )


@functools.cache
def trained_here():
    with pytest.MonkeyPatch.context() as patch:
        return train(LocalEngine(), patch)


def assert_learns_what_local_processes_learn(engine, monkeypatch):
    """The same weights to the bit, and the same losses on the way."""
    ours, expected = train(engine, monkeypatch), trained_here()
    assert_same_weights(ours, expected)
    assert [epoch["loss"] for epoch in ours.history_] == [epoch["loss"] for epoch in expected.history_]
