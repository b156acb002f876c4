"""Transfer learning through Trainer, TorchNano and @nano: the frozen beginning is found, made fast and remembered."""

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from seamline.nano.torch import TorchNano, Trainer, nano

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers which may be a bottleneck",
    "ignore:The number of training batches",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
    "ignore:Found .* module.* in eval mode at the start of training",
)
ROWS, BATCH, EPOCHS = 44, 8, 4


class Photographs(Dataset):
    """Counts how often it is read."""

    def __init__(self, random=False):
        generator = torch.Generator().manual_seed(0)
        self.x, self.y = torch.randn(ROWS, 3, 32, 32, generator=generator), torch.arange(ROWS) % 2
        self.read, self.random = 0, random

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        self.read += 1
        return self.x[index] + (torch.rand(()) if self.random else 0), self.y[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Linear(64, 2)
        self.backbone.requires_grad_(False)
        self.train()

    def train(self, mode=True):
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, x):
        return self.head(self.backbone(x))


class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.net.head.parameters(), 0.1)


def parts(data):
    torch.manual_seed(0)
    model = Net()
    return model, torch.optim.SGD(model.head.parameters(), 0.1), DataLoader(data, BATCH, shuffle=True)


def loop(model, optimizer, loader):
    model.train()
    for _ in range(EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


class Loop(TorchNano):
    def train(self, data):
        model, optimizer, loader = parts(data)
        loop(*self.setup(model, optimizer, loader))
        return model.state_dict()


def with_trainer(kind, data, folder, **options):
    torch.manual_seed(0)
    module = Module()
    trainer = kind(
        max_epochs=EPOCHS, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=folder, **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, BATCH, shuffle=True))
    return module.net


def apart(one, other):
    pairs = zip(one.values(), other.values(), strict=True)
    return max(float((a.float() - b.float()).norm() / (b.float().norm() + 1e-9)) for a, b in pairs)


@pytest.mark.parametrize("processes", [1, 2])
def test_trainer_remembers_the_features_and_learns_the_same(tmp_path, processes):
    plain, data = with_trainer(pl.Trainer, Photographs(), tmp_path), Photographs()
    ours = with_trainer(Trainer, data, tmp_path, num_processes=processes, cache_frozen=True)
    assert apart(ours.state_dict(), plain.state_dict()) < 2e-2
    if processes == 1:
        assert data.read <= ROWS + 16 + (EPOCHS - 1) * BATCH, "later epochs are read for a check alone"
    assert "forward" not in vars(ours.backbone), "the model comes back as it was"


@pytest.mark.parametrize("processes", [1, 2])
def test_a_plain_loop_remembers_the_features_and_learns_the_same(processes, capfd):
    expected = parts(Photographs())
    loop(*expected)
    data = Photographs()
    given = parts(data)
    nano(num_processes=processes, cache_frozen=True)(loop)(*given)
    assert apart(given[0].state_dict(), expected[0].state_dict()) < 2e-2
    if processes == 1:
        assert data.read <= ROWS + 16 + (EPOCHS - 1) * BATCH
    learned = Loop(num_processes=processes, cache_frozen=True).train(Photographs())
    assert apart(learned, expected[0].state_dict()) < 2e-2
    assert "features of 44 rows are kept" in capfd.readouterr().out


def test_random_augmentation_is_not_remembered_and_that_is_said(capsys):
    data = Photographs(random=True)
    given = parts(data)
    nano(cache_frozen=True)(loop)(*given)
    assert data.read >= ROWS * EPOCHS
    assert "not cached: reading it draws random numbers" in capsys.readouterr().out


def test_a_frozen_part_that_changes_in_training_is_left_alone_and_that_is_said(capsys):
    class Careless(Net):
        def train(self, mode=True):
            return nn.Module.train(self, mode)

    torch.manual_seed(0)
    model = Careless()
    nano()(loop)(model, torch.optim.SGD(model.head.parameters(), 0.1), DataLoader(Photographs(), BATCH))
    said = capsys.readouterr().out
    assert "backbone.1" in said
    assert "eval()" in said
