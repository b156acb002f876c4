"""LightningModules as models, against Lightning's own Trainer on the same batches."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import torchmetrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.core.errors import WorkerError
from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import EarlyStopping
from tests.orca.networks import ROWS, assert_same_weights, make_network, make_rows, weights

X, Y = make_rows()
BATCH = 40


class Lit(pl.LightningModule):
    """What people write: hyperparameters, steps that log numbers and metrics, a scheduler."""

    def __init__(self, interval="epoch", unused=False):
        super().__init__()
        self.save_hyperparameters()
        self.body = make_network()
        self.unused = nn.Linear(2, 2) if unused else None
        self.train_acc = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.val_acc = torchmetrics.Accuracy("multiclass", num_classes=3)
        self.heard = []

    def forward(self, x):
        return self.body(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        outputs = self(x)
        loss = nn.functional.cross_entropy(outputs, y) * (1 + 0.01 * batch_idx + 0.1 * self.current_epoch)
        self.train_acc(outputs, y)
        self.log("train_acc", self.train_acc, on_step=False, on_epoch=True)
        self.log_dict({"train_loss": loss, "spread": outputs.std()}, on_epoch=True, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        outputs = self(x)
        self.val_acc(outputs, y)
        self.log("val_acc", self.val_acc)
        self.log("val_loss", nn.functional.cross_entropy(outputs, y))

    def on_train_epoch_start(self):
        self.heard.append(f"epoch {self.current_epoch}")

    def on_validation_epoch_end(self):
        self.log("val_norm", self.body[0].weight.norm())

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)
        if self.hparams.interval == "cycle":
            steps = self.trainer.estimated_stepping_batches
            cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=steps)
            return [optimizer], [{"scheduler": cycle, "interval": "step"}]
        if self.hparams.interval == "plateau":
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0, threshold=10.0)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_loss"}}
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)}


def loader():
    return DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=BATCH)


def trained_by_lightning(module, epochs=3):
    """The module, its optimizer's rate, and what the Trainer says was logged."""
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(module, loader(), loader())
    logged = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return [p.detach().numpy() for p in module.parameters()], trainer.optimizers[0].param_groups[0]["lr"], logged


quiet = pytest.mark.filterwarnings(  # Lightning's advice on loaders, and its own use of what torch deprecates
    "ignore:.*does not have many workers",
    "ignore:.*log_every_n_steps",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
)


def fit(model, data=(X, Y), **options):
    options = {"epochs": 3, "batch_size": BATCH, "shuffle": False, "verbose": 0, "validation_data": data, **options}
    return Estimator.from_torch(model=model, tuning=options.pop("tuning", None)).fit(data, **options)


def learned(est):
    return [p.detach().numpy() for p in est.get_model().parameters()]


def assert_close(ours, theirs, atol):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=atol)


@quiet
@pytest.mark.parametrize("interval", ["epoch", "cycle", "plateau"])
def test_it_learns_and_logs_what_lightnings_trainer_does(interval):
    expected, rate, logged = trained_by_lightning(Lit(interval))
    for workers, atol in ((1, 1e-6), (2, 1e-5)):
        est = fit(Lit(interval), workers=workers)
        assert_close(learned(est), expected, atol)
        assert est.state_["optimizer"]["param_groups"][0]["lr"] == pytest.approx(rate)
        record = est.history_[-1]
        # With on_step and on_epoch, Lightning has the epoch's mean under a name of its own.
        ours = {"train_loss_epoch": "train_loss", "spread_epoch": "spread"}
        for name in ("train_acc", "val_acc", "val_loss", "val_norm", "train_loss_epoch", "spread_epoch"):
            tolerance = 0.1 if name == "spread_epoch" and workers == 2 else 1e-5
            assert record[ours.get(name, name)] == pytest.approx(logged[name], abs=tolerance), name
        assert record["loss"] == pytest.approx(record["train_loss"], abs=1e-6)


def test_a_function_a_class_and_an_instance_are_all_the_same():
    module = Lit()
    instance, function, kind = fit(module), fit(lambda: Lit(), workers=2), fit(Lit)
    assert instance.get_model() is module
    assert module.heard == ["epoch 0", "epoch 1", "epoch 2"]
    assert_same_weights(instance, kind)
    assert_close(learned(function), learned(instance), 1e-5)


def test_the_module_is_left_as_it_was():
    module = Lit()
    fit(module)
    assert module._trainer is None
    assert "log" not in vars(module)
    assert module.train_acc._update_count == 0


@pytest.mark.parametrize("data", [(X, Y), None], ids=["arrays", "loader"])
@pytest.mark.parametrize("workers", [1, 2])
def test_predicting_is_forward_and_evaluating_is_validation_step(data, workers):
    est = fit(Lit(), data or loader(), batch_size=BATCH if data else None, workers=workers)
    with torch.no_grad():
        outputs = est.get_model().eval()(torch.from_numpy(X))
    np.testing.assert_allclose(est.predict(X, workers=workers), outputs.numpy(), atol=1e-6)
    scores = est.evaluate((X, Y), workers=workers)
    y = torch.from_numpy(Y)
    assert scores["val_loss"] == pytest.approx(float(nn.functional.cross_entropy(outputs, y)), abs=1e-5)
    assert scores["val_acc"] == pytest.approx(float((outputs.argmax(1) == y).float().mean()), abs=1e-6)


def test_a_worker_without_rows_and_a_layer_without_use_change_no_metric():
    """The last batch is one row, which one worker has; the first step is computed twice to find the unused layer."""
    one, three = (fit(Lit(unused=True), batch_size=51, workers=workers) for workers in (1, 3))
    assert_close(learned(one), learned(three), 1e-5)
    for ours, theirs in zip(three.history_, one.history_, strict=True):
        same = {name: value for name, value in theirs.items() if name != "spread"}
        assert {name: ours[name] for name in same} == pytest.approx(same, abs=1e-5)


def test_deterministic_gives_the_same_bits_on_any_number_of_workers():
    one, two = (fit(Lit(), workers=workers, deterministic=True) for workers in (1, 2))
    assert_same_weights(one, two)
    assert one.history_ == two.history_


def test_with_a_moving_average_steps_within_an_epoch_and_early_stopping():
    stopping = EarlyStopping("val_acc", patience=2, min_delta=10.0)
    est = fit(Lit(), tuning=Tuning(ema=0.5), validate_every=2, callbacks=[stopping])
    assert [each["step"] for each in est.validations_] == [2, 3, 4]
    assert est.validations_[-1]["val_acc"] == pytest.approx(est.evaluate((X, Y))["val_acc"], abs=1e-6)


def test_a_run_goes_on_in_the_middle_of_an_epoch(tmp_path):
    def run(**options):
        est = Estimator.from_torch(model=Lit, model_dir=tmp_path)
        return est.fit((X, Y), batch_size=BATCH, epochs=2, verbose=0, **options)

    run(max_steps=4)
    halves, whole = run(resume="auto"), run()
    assert_same_weights(halves, whole)
    for name in ("loss", "train_loss", "spread"):
        assert halves.history_[1][name] == pytest.approx(whole.history_[1][name])


class Autoencoder(pl.LightningModule):
    """Takes items of one tensor, and of three, as its loader gives them."""

    def __init__(self, columns=1):
        super().__init__()
        torch.manual_seed(3)
        self.columns = columns
        self.layer = nn.Linear(6, 6)

    def training_step(self, batch):
        assert len(batch) == self.columns
        return (self.layer(batch[0]) - batch[-1]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@quiet
@pytest.mark.parametrize("columns", [1, 3])
def test_items_come_as_the_loader_gives_them(columns):
    x = torch.from_numpy(X)
    data = DataLoader(TensorDataset(*[x, x * 2, x * 3][:columns]), batch_size=BATCH)
    est = fit(Autoencoder(columns), data, batch_size=None, epochs=1, validation_data=None)
    module = Autoencoder(columns)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, data)
    assert_close(learned(est), [p.detach().numpy() for p in module.parameters()], 1e-6)


def test_layers_may_be_made_late():
    class Late(Lit):
        def __init__(self):
            super().__init__()
            self.body = None

        def configure_model(self):
            if self.body is None:
                self.body = make_network()

    est = fit(Late)
    assert_close(learned(est), learned(fit(Lit)), 1e-6)
    assert est.predict(X).shape == (ROWS, 3)


def test_with_an_optimizer_and_a_loss_it_is_a_model_like_any_other():
    module = Lit()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    est = Estimator.from_torch(model=module, optimizer=optimizer, loss=nn.CrossEntropyLoss())
    est.fit((X, Y), batch_size=BATCH, shuffle=False, verbose=0)
    plain = make_network()
    rate = torch.optim.SGD(plain.parameters(), lr=0.1)
    for first in range(0, ROWS, BATCH):
        rate.zero_grad()
        x, y = torch.from_numpy(X[first : first + BATCH]), torch.from_numpy(Y[first : first + BATCH])
        nn.functional.cross_entropy(plain(x), y).backward()
        rate.step()
    assert_close(weights(est), [p.detach().numpy() for p in plain.parameters()], 1e-6)


# What has no place here


class ByHand(Lit):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Stepping(Lit):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.heard.append(batch_idx)


class TwoOptimizers(Lit):
    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), 0.1), torch.optim.SGD(self.parameters(), 0.1)]


class NoOptimizer(Lit):
    def configure_optimizers(self):
        return None


class Rarely(Lit):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return [optimizer], [{"scheduler": scheduler, "interval": "step", "frequency": 5}]


class Unwatched(Lit):
    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": plateau, "monitor": "val_auc"}}


class Skipping(Lit):
    def training_step(self, batch, batch_idx):
        return None


class Asking(Lit):
    def training_step(self, batch, batch_idx):
        return self.trainer.strategy


class Summing(Lit):
    def training_step(self, batch, batch_idx):
        self.log("rows", float(len(batch[0])), reduce_fx="sum")
        return super().training_step(batch, batch_idx)


class Unscored(Lit):
    validation_step = pl.LightningModule.validation_step


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (ByHand, r"ByHand optimises by hand \(automatic_optimization=False\), which this loop has no place for; use"),
        (Stepping, "Stepping overrides on_train_batch_end, which this loop has no place for; use seamline.nano.torch"),
        (TwoOptimizers, "configure_optimizers of TwoOptimizers gives 2 optimizers and 0 schedulers"),
        (NoOptimizer, "configure_optimizers of NoOptimizer gives 0 optimizers"),
        (Rarely, "a scheduler that does not move with every step; take interval='epoch'"),
        (Unwatched, "the scheduler monitors 'val_auc', which is not logged; this run logs 'epoch', 'loss'"),
        (Skipping, "training_step returned nothing; return the mean loss of the batch"),
        (Asking, "self.trainer.strategy is of Lightning's Trainer, which does not run here; there are current_epoch"),
        (Summing, "'rows' is logged with reduce_fx='sum', and numbers are averaged; log a metric"),
        (Unscored, "Unscored has no validation_step; write one that calls self.log"),
    ],
)
def test_what_this_loop_cannot_do_is_said(kind, message):
    with pytest.raises((ValueError, TypeError, AttributeError, WorkerError), match=message):
        fit(kind())


def test_a_function_that_makes_another_model_is_told_what_is_missing():
    with pytest.raises((ValueError, WorkerError), match="optimizer is missing"):
        fit(lambda: make_network())


@pytest.mark.parametrize(("option", "value"), [("metrics", lambda o, t: 0), ("scheduler", lambda optimizer: None)])
def test_what_the_module_says_itself_is_not_said_twice(option, value):
    est = Estimator.from_torch(model=Lit(), **{option: value})
    with pytest.raises(ValueError, match=f"{option}= is for models with optimizer= and loss="):
        est.fit((X, Y), verbose=0)
