"""What becomes of a trained model: ONNX, an optimised copy, and checkpoints that another program goes on from."""

import lightning.pytorch as pl
import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from seamline.core.errors import CheckpointError, SeamlineError
from seamline.orca import Estimator, latest_checkpoint
from tests.orca.networks import assert_same_weights, make_network, make_rows

X, Y = make_rows()
BATCH = 20


def make(model=make_network, **options):
    return Estimator.from_torch(
        model=model,
        optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
        loss=nn.CrossEntropyLoss(),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
        **options,
    )


def fit(est, **options):
    return est.fit((X, Y), **{"epochs": 2, "batch_size": BATCH, "verbose": 0, **options})


@pytest.fixture(scope="module")
def trained():
    return fit(make())


# ONNX


@pytest.mark.parametrize("sample", [None, X[:3]], ids=["the row that fit read", "a sample"])
def test_the_exported_file_answers_as_the_model_does_for_any_number_of_rows(trained, tmp_path, sample):
    trained.to_onnx(tmp_path / "deep" / "model.onnx", sample)
    session = onnxruntime.InferenceSession(tmp_path / "deep" / "model.onnx", providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    for rows in (1, 7, len(X)):
        np.testing.assert_allclose(session.run(None, {name: X[:rows]})[0], trained.predict(X[:rows]), atol=1e-5)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(6, 3)

    def forward(self, left, right):
        return self.layer(left - right)


@pytest.mark.parametrize("workers", [1, 2])
def test_several_inputs_are_remembered_from_the_workers(tmp_path, workers):
    est = make(Pair).fit(({"left": X, "right": X * 2}, Y), batch_size=BATCH, verbose=0, workers=workers)
    est.to_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    answer = session.run(None, dict(zip(names, (X, X * 2), strict=True)))[0]
    np.testing.assert_allclose(answer, est.predict({"left": X, "right": X * 2}), atol=1e-5)


class WithExample(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.example_input_array = torch.zeros(2, 6)

    def forward(self, x):
        return self.layer(x)


def test_without_any_sample_it_says_what_is_needed(tmp_path):
    Estimator.from_torch(model=WithExample()).to_onnx(tmp_path / "example.onnx")
    assert (tmp_path / "example.onnx").stat().st_size > 0
    with pytest.raises(ValueError, match="nothing to call the model with; give input_sample="):
        make().to_onnx(tmp_path / "none.onnx")


# Optimising


def test_the_trained_model_is_optimised_and_answers_in_predict(trained):
    report = trained.optimize((X, Y), includes=["onnxruntime-fp32"], timeout_s=60, verbose=0)
    fast = report.get_model("onnxruntime-fp32")
    np.testing.assert_allclose(trained.predict(X, model=fast), trained.predict(X), atol=1e-5)


# Checkpoints


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("steps", [6, 8], ids=["end of an epoch", "within an epoch"])
def test_another_program_goes_on_from_the_very_step(tmp_path, steps, workers):
    left = fit(make(), max_steps=steps, workers=workers)
    left.save_checkpoint(tmp_path / "left")
    taken = make().load_checkpoint(tmp_path / "left")
    np.testing.assert_array_equal(taken.predict(X), left.predict(X))
    fit(taken, workers=workers)
    whole = fit(make(), workers=workers)
    assert_same_weights(taken, whole)
    assert taken.history_ == [pytest.approx(epoch) for epoch in whole.history_]
    assert taken.ledger_.to_dict() == whole.ledger_.to_dict()


def test_a_finished_run_can_be_made_longer_and_then_fitted_again(tmp_path):
    fit(make()).save_checkpoint(tmp_path / "two")
    longer = fit(make().load_checkpoint(tmp_path / "two"), epochs=3)
    assert_same_weights(longer, fit(make(), epochs=3))
    assert [epoch["epoch"] for epoch in fit(longer, epochs=1).history_] == [1, 2, 3, 4]


def test_a_checkpoint_of_a_run_is_found_and_gone_on_from_without_its_directory(tmp_path):
    assert latest_checkpoint(tmp_path) is None
    fit(make(model_dir=tmp_path), checkpoint=3, max_steps=8)
    newest = latest_checkpoint(tmp_path)
    assert newest.name == "step-0000000008"
    assert_same_weights(fit(make().load_checkpoint(newest)), fit(make()))
    fit(make(model_dir=tmp_path), epochs=1)
    assert latest_checkpoint(tmp_path).parent.parent.name == "run-0002"


def test_what_cannot_be_gone_on_from(tmp_path, trained):
    with pytest.raises(SeamlineError, match="nothing to go on from; a checkpoint is of a fit"):
        make().save_checkpoint(tmp_path / "none")
    trained.save(tmp_path / "model")
    with pytest.raises(CheckpointError, match="is a saved model, not a checkpoint; use load to start from it"):
        make().load_checkpoint(tmp_path / "model")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="exists and was not saved by Seamline; choose another path"):
        trained.save_checkpoint(tmp_path / "mine")
    trained.save_checkpoint(tmp_path / "left")
    with pytest.raises(CheckpointError, match="batch_size=20, this run has batch_size=30"):
        fit(make().load_checkpoint(tmp_path / "left"), batch_size=30)


def test_loading_a_model_forgets_the_run_that_was_to_be_gone_on_with(tmp_path, trained):
    fit(make(), max_steps=8).save_checkpoint(tmp_path / "left")
    trained.save(tmp_path / "model")
    loaded = make().load_checkpoint(tmp_path / "left").load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), trained.predict(X))
    assert [epoch["epoch"] for epoch in fit(loaded, epochs=1).history_] == [1, 2, 3]
    of_checkpoint = make().load(tmp_path / "left")
    np.testing.assert_array_equal(of_checkpoint.predict(X), make().load_checkpoint(tmp_path / "left").predict(X))
