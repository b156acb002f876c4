"""Trainer: Lightning programs, faster, with the numbers they had."""

import warnings

import lightning.pytorch as pl
import pytest
import torch
import torchmetrics
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from seamline.core import machine
from seamline.nano.torch import Trainer
from seamline.nano.torch.training import choice

pytestmark = pytest.mark.filterwarnings(
    "ignore:The '.*_dataloader' does not have many workers",
    "ignore:.*does not have many workers which may be a bottleneck",
    "ignore:The number of training batches",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
    "ignore:You defined a `validation_step` but have no `val_dataloader`",
    "ignore:Checkpoint directory .* exists and is not empty",
)

ROWS, BATCH = 53, 8  # the last batch has 5 rows


def rows():
    torch.manual_seed(1)
    x = torch.randn(ROWS, 6)
    return TensorDataset(x, (x @ torch.randn(6, 3)).argmax(1))


class Net(pl.LightningModule):
    def __init__(self, kind="sgd", scheduled=False, unused=False):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        self.idle = nn.Linear(2, 2) if unused else None
        self.kind, self.scheduled = kind, scheduled
        self.right = torchmetrics.Accuracy("multiclass", num_classes=3)

    def forward(self, x):
        return self.layers(x)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        out = self(x)
        self.log("val_loss", nn.functional.cross_entropy(out, y))
        self.right(out, y)
        self.log("val_right", self.right)

    test_step = validation_step

    def predict_step(self, batch, _):
        return self(batch[0])

    def configure_optimizers(self):
        kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
        optimizer = kinds[self.kind](self.parameters(), 0.05)
        if self.scheduled:
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]
        return optimizer


def quiet(folder, **options):
    return {
        "max_epochs": 3,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "logger": False,
        "enable_checkpointing": False,
        "default_root_dir": folder,
        "accelerator": "cpu",
        **options,
    }


def trained(trainer, *args, model=None, shuffle=True, **fit):
    torch.manual_seed(0)
    model = model or Net(*args)
    data = rows()
    trainer.fit(model, DataLoader(data, BATCH, shuffle=shuffle), DataLoader(data, BATCH), **fit)
    return model


def close(one, other, tolerance=1e-5):
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.allclose(a.float(), b.float(), atol=tolerance, rtol=0) for a, b in pairs)


def same_bits(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


def test_without_auto_the_numbers_are_lightnings_to_the_bit(tmp_path):
    plain, ours = pl.Trainer(**quiet(tmp_path)), Trainer(auto=False, **quiet(tmp_path))
    assert isinstance(ours, pl.Trainer)
    assert same_bits(trained(plain), trained(ours))
    assert plain.callback_metrics.keys() == ours.callback_metrics.keys()
    for name, value in plain.callback_metrics.items():
        assert torch.equal(value, ours.callback_metrics[name])


@pytest.mark.parametrize(("kind", "shuffle"), [("sgd", True), ("adam", False)])
def test_two_processes_learn_what_one_would(tmp_path, kind, shuffle):
    one, two = pl.Trainer(**quiet(tmp_path)), Trainer(num_processes=2, auto=False, **quiet(tmp_path))
    alone, together = trained(one, kind, shuffle=shuffle), trained(two, kind, shuffle=shuffle)
    assert close(alone, together)
    for name in ("loss", "val_loss", "val_right"):
        assert abs(one.callback_metrics[name] - two.callback_metrics[name]) < 1e-5, name


def test_parameters_that_take_no_part_are_no_obstacle(tmp_path):
    one, two = pl.Trainer(**quiet(tmp_path)), Trainer(num_processes=2, auto=False, **quiet(tmp_path))
    assert close(trained(one, "sgd", False, True), trained(two, "sgd", False, True))


class Counter(Callback):
    def __init__(self):
        self.epochs = 0

    def on_train_epoch_end(self, trainer, module):
        self.epochs += 1

    def state_dict(self):
        return {"epochs": self.epochs}

    def load_state_dict(self, state):
        self.epochs = state["epochs"]


def test_callbacks_checkpoints_loggers_and_all_verbs_with_two_processes(tmp_path):
    checkpoint, counter = ModelCheckpoint(tmp_path / "ckpt", monitor="val_loss", save_last=True), Counter()
    trainer = Trainer(
        num_processes=2,
        auto=False,
        **quiet(
            tmp_path,
            logger=CSVLogger(tmp_path),
            enable_checkpointing=True,
            callbacks=[checkpoint, counter, EarlyStopping("val_loss", patience=50)],
            log_every_n_steps=1,
        ),
    )
    model = trained(trainer)
    assert counter.epochs == 3
    assert (trainer.current_epoch, trainer.global_step) == (3, 21)
    best = torch.load(checkpoint.best_model_path, weights_only=False)
    assert best["epoch"] == 2
    assert "val_loss" in next((tmp_path / "lightning_logs").rglob("metrics.csv")).read_text()

    loader = DataLoader(rows(), BATCH)
    alone = pl.Trainer(**quiet(tmp_path))
    mine = trainer.test(model, loader, verbose=False)[0]
    theirs = alone.test(model, loader, verbose=False)[0]
    assert mine.keys() == theirs.keys()
    assert all(abs(mine[name] - theirs[name]) < 1e-6 for name in mine)
    ours, plain = trainer.predict(model, loader), alone.predict(model, loader)
    assert [len(batch) for batch in ours] == [8, 8, 8, 8, 8, 8, 5]
    assert torch.allclose(torch.cat(ours), torch.cat(plain), atol=1e-6)

    trainer.fit_loop.max_epochs = 5
    again = trained(trainer, model=model)
    assert (trainer.current_epoch, counter.epochs) == (5, 5)
    resumed = Trainer(
        num_processes=2,
        auto=False,
        **quiet(tmp_path, max_epochs=5, enable_checkpointing=True, callbacks=[checkpoint, Counter()]),
    )
    resumed.fit(again, loader, loader, ckpt_path="last")
    assert resumed.current_epoch == 5


class Stream(IterableDataset):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(self.data)


def test_a_stream_is_shared_too(tmp_path):
    def fitted(trainer):
        torch.manual_seed(0)
        model = Net()
        trainer.fit(model, DataLoader(Stream(rows()), BATCH))
        return model

    assert close(fitted(pl.Trainer(**quiet(tmp_path))), fitted(Trainer(num_processes=2, auto=False, **quiet(tmp_path))))


def test_whole_batches_scale_the_learning_rate_and_warm_it_up(tmp_path):
    class Rates(Callback):
        def __init__(self):
            self.seen = []

        def on_train_batch_end(self, trainer, *_):
            self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    rates = Rates()
    trainer = Trainer(
        num_processes=2, auto=False, scale_batch=True, **quiet(tmp_path, max_epochs=40, callbacks=[rates])
    )
    trained(trainer)
    assert trainer.global_step == 160
    assert rates.seen[0] == pytest.approx(0.05 * 1.01)
    assert rates.seen[-1] == pytest.approx(0.10)
    scheduled = Rates()
    trained(
        Trainer(num_processes=2, auto=False, scale_batch=True, **quiet(tmp_path, callbacks=[scheduled])),
        "sgd",
        True,
    )
    assert scheduled.seen[0] == pytest.approx(0.05)


class Images(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(64, 2)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.head(self.body(batch[0])), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05, momentum=0.9)


def images():
    torch.manual_seed(0)
    x, y = torch.randn(160, 3, 24, 24), torch.arange(160) % 2
    x[y == 1] += 0.5
    return DataLoader(TensorDataset(x, y), 8, shuffle=True)


@pytest.mark.parametrize("processes", [1, 2])
def test_auto_says_what_it_chose_and_learns_as_well(tmp_path, processes, capfd, caplog):
    loaders, losses = images(), []
    for trainer in (
        pl.Trainer(**quiet(tmp_path)),
        Trainer(num_processes=processes, **quiet(tmp_path)),
    ):
        torch.manual_seed(0)
        model = Images()
        trainer.fit(model, loaders)
        with torch.no_grad():
            x, y = loaders.dataset.tensors
            losses.append(float((model.eval().head(model.body(x)).argmax(1) == y).float().mean()))
        assert model.body[0].weight.is_contiguous(), "the model comes back in the layout that it had"
    assert "seamline: training runs" in caplog.text + capfd.readouterr().err
    assert abs(losses[0] - losses[1]) <= 0.03


def test_a_plain_module_becomes_a_lightning_module(tmp_path):
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    module = Trainer.compile(
        model,
        nn.CrossEntropyLoss(),
        torch.optim.SGD(model.parameters(), 0.1),
        metrics=[torchmetrics.Accuracy("multiclass", num_classes=3)],
    )
    trainer = Trainer(**quiet(tmp_path))
    loader = DataLoader(rows(), BATCH)
    before = nn.functional.cross_entropy(model(rows().tensors[0]), rows().tensors[1])
    trainer.fit(module, loader, loader)
    after = nn.functional.cross_entropy(model(rows().tensors[0]), rows().tensors[1])
    assert after < before
    assert {"val_loss", "val_MulticlassAccuracy"} <= set(trainer.callback_metrics)
    assert torch.cat(trainer.predict(module, loader)).shape == (ROWS, 3)
    with pytest.raises(ValueError, match="the optimizer holds no parameter of this model"):
        Trainer.compile(nn.Linear(2, 2), nn.MSELoss(), torch.optim.SGD(model.parameters(), 0.1))


def test_the_papers_three_lines_quantize_with_onnx_and_run(tmp_path):
    x = rows().tensors[0]
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    trainer = Trainer(**quiet(tmp_path))
    quantized = trainer.quantize(model, accelerator="onnxruntime", calib_data=x)
    assert (quantized(x) - model(x)).norm() / model(x).norm() < 0.1


def test_bad_arguments_are_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="num_processes must be a whole number of at least 1, but got num_processes=0"):
        Trainer(num_processes=0)
    with pytest.raises(ValueError, match=r"num_processes=2 and devices=4 cannot be had together; leave one out"):
        Trainer(num_processes=2, devices=4)
    cores = machine.cores().count
    with pytest.warns(UserWarning, match=f"but this machine gives the program {cores} cores"):
        Trainer(num_processes=cores + 3, **quiet(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(num_processes=cores, **quiet(tmp_path))


class Uncompilable(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        torch._dynamo.graph_break()
        if x.sum().item() > 0:
            return self.layer(x)
        return self.layer(x) * 1.0


def test_what_cannot_be_compiled_runs_as_it_is(tmp_path, caplog):
    torch.manual_seed(0)
    model = Uncompilable()
    module = Trainer.compile(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))
    Trainer(compile=True, **quiet(tmp_path, max_epochs=8)).fit(module, DataLoader(rows(), BATCH))
    assert "now the compiler is tried" in caplog.text
    assert "places, which run as they are" in caplog.text


class OnlyFloat(nn.Module):
    """A layer that somebody wrote for one type alone."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        out = self.layer(x)
        if out.dtype != torch.float32:
            raise RuntimeError("expected scalar type Float")
        return out


def test_a_setting_that_does_not_work_costs_nothing_but_a_line(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(choice, "SHORTEST_RUN_S", 0.0)

    def fitted(trainer):
        torch.manual_seed(0)
        model = OnlyFloat()
        module = Trainer.compile(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1))
        trainer.fit(module, DataLoader(rows(), BATCH))
        return module

    assert same_bits(fitted(pl.Trainer(**quiet(tmp_path))), fitted(Trainer(**quiet(tmp_path))))
    tried = machine.has_bf16()
    assert ("bf16 does not work for this model and is left out (RuntimeError: expected" in caplog.text) == tried
