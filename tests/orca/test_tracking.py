"""Trackers, with the libraries themselves: MLflow in a store of files, Weights & Biases offline."""

import struct
import sys

import pytest
import torch
import wandb
from mlflow import MlflowClient
from torch import nn
from wandb.proto.wandb_internal_pb2 import Record

from seamline.core.errors import UnavailableError
from seamline.orca import Estimator
from seamline.orca.callbacks import MLflow, WandB
from seamline.testing.faults import Kill
from tests.orca.networks import make_network, make_rows

STEPS = 11


def make_estimator(**options):
    model = make_network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), **options)


def fit(est=None, **options):
    return (est or make_estimator()).fit(make_rows(), **{"epochs": 2, "batch_size": 10, "verbose": 0, **options})


@pytest.fixture
def mlflow_store(tmp_path, monkeypatch):
    """A store of files, which needs no server."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "store").as_uri()


def logged(store, tracker, name):
    return [(each.step, each.value) for each in MlflowClient(store).get_metric_history(tracker.run_id, name)]


def test_mlflow_has_what_was_asked_for_and_what_came_of_it(mlflow_store):
    tracker = MLflow("flights", tracking_uri=mlflow_store, params={"depth": 3}, every_steps=5)
    est = fit(callbacks=[tracker])
    run = MlflowClient(mlflow_store).get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    expected = {"epochs": "2", "batch_size": "10", "workers": "1", "seed": "0", "depth": "3"}
    assert expected.items() <= run.data.params.items()
    losses = [(STEPS * number, epoch["loss"]) for number, epoch in enumerate(est.history_, 1)]
    assert logged(mlflow_store, tracker, "epoch/loss") == losses
    assert [step for step, _ in logged(mlflow_store, tracker, "step/loss")] == [5, 10, 15, 20]
    assert [value for _, value in logged(mlflow_store, tracker, "pace/rows_per_s")] == [
        est.profile_.rows_per_s(epoch) for epoch in (1, 2)
    ]


def test_a_resumed_run_goes_on_in_the_same_mlflow_run(mlflow_store, tmp_path):
    first, second = (MLflow(tracking_uri=mlflow_store) for _ in range(2))
    fit(make_estimator(model_dir=tmp_path / "runs"), callbacks=[first], max_steps=STEPS + 4)
    fit(make_estimator(model_dir=tmp_path / "runs"), callbacks=[second], resume="auto")
    assert second.run_id == first.run_id
    assert MlflowClient(mlflow_store).get_run(first.run_id).info.status == "FINISHED"
    assert logged(mlflow_store, first, "epoch/loss")[-1][0] == 2 * STEPS


def test_a_run_that_was_lost_before_its_first_checkpoint_is_found_again(mlflow_store):
    tracker = MLflow(tracking_uri=mlflow_store)
    fit(callbacks=[tracker], workers=2, retry=1, faults=[Kill(rank=1, step=3)])
    (run,) = MlflowClient(mlflow_store).search_runs(["0"])
    assert run.info.run_id == tracker.run_id


def test_a_run_of_the_users_own_stays_theirs(mlflow_store):
    client = MlflowClient(mlflow_store)
    theirs = client.create_run("0").info.run_id
    fit(callbacks=[MLflow(tracking_uri=mlflow_store, run_id=theirs)])
    run = client.get_run(theirs)
    assert (run.info.status, run.data.params) == ("RUNNING", {})
    assert "epoch/loss" in run.data.metrics


def records(folder):
    """What Weights & Biases has kept offline: its file is a log of records in blocks."""
    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    content, place, whole = path.read_bytes(), 7, b""
    while place < len(content):
        room = 32768 - place % 32768
        if room < 7:
            place += room
            continue
        length, kind = struct.unpack_from("<HB", content, place + 4)
        whole += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield Record.FromString(whole)
            whole = b""


def kept(folder):
    rows, settings, ids = [], {}, set()
    for record in records(folder):
        if record.HasField("history"):
            rows.append({each.key or each.nested_key[0]: float(each.value_json) for each in record.history.item})
        if record.HasField("run"):
            ids.add(record.run.run_id)
            settings |= {each.key: each.value_json for each in record.run.config.update}
    return rows, settings, ids


def offline(folder, **options):
    folder.mkdir()
    return WandB("flights", dir=folder, mode="offline", settings=wandb.Settings(silent=True), **options)


def test_wandb_has_what_was_asked_for_and_a_resumed_run_goes_on(tmp_path):
    first = offline(tmp_path / "first", params={"depth": 3}, every_steps=5)
    second = offline(tmp_path / "second")
    assert second.run_id != first.run_id
    fit(make_estimator(model_dir=tmp_path / "runs"), callbacks=[first], max_steps=STEPS + 4)
    est = fit(make_estimator(model_dir=tmp_path / "runs"), callbacks=[second], resume="auto")
    assert second.run_id == first.run_id
    rows, settings, ids = kept(tmp_path / "first")
    assert {"epochs": "2", "batch_size": "10", "workers": "1", "depth": "3"}.items() <= settings.items()
    assert ids == {first.run_id}
    assert [row["step"] for row in rows if "step/loss" in row] == [5, 10, 15]
    assert next(row["epoch/loss"] for row in rows if "epoch/loss" in row) == pytest.approx(est.history_[0]["loss"])
    rows, _, ids = kept(tmp_path / "second")
    assert ids == {first.run_id}
    assert [(row["step"], row["epoch/loss"]) for row in rows] == [(2 * STEPS, est.history_[1]["loss"])]


@pytest.mark.parametrize(("tracker", "library"), [(MLflow, "mlflow"), (WandB, "wandb")])
def test_a_missing_library_is_named_before_anything_starts(monkeypatch, tracker, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UnavailableError, match=rf'{library} is not installed; pip install "seamline\[tracking\]"'):
        tracker()


def test_a_tracker_asks_for_at_least_every_step():
    with pytest.raises(ValueError, match="every_steps must be at least 1, but got every_steps=0"):
        WandB(every_steps=0)
