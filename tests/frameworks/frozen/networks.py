"""Models with a frozen beginning, the ways in which people write them, and a plain loop to compare with."""

import torch
from torch import nn
from torch.utils.data import Dataset

ROWS, BATCH = 22, 4


def backbone():
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
    )


def frozen(module):
    return module.requires_grad_(False).eval()


def in_a_row():
    """Backbone and head one after the other; pooling and dropout stand between them."""
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32, 3)]
    return nn.Sequential(frozen(backbone()), *head)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)) + x)


class SmallResNet(nn.Module):
    """Frozen up to the last block; cut in the middle of ``forward``, with a shape that crosses the cut."""

    def __init__(self):
        super().__init__()
        self.stem = frozen(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()))
        self.layers = nn.Sequential(frozen(Residual()), Residual())
        self.fc = nn.Linear(8, 3)
        self.scale = 1.0

    def forward(self, x):
        rows = x.size(0)
        x = self.layers(self.stem(x))
        return self.fc(x.mean((2, 3)).view(rows, -1)) * self.scale


class Lightningish(nn.Module):
    """``training_step`` gets the batch and calls its parts itself."""

    def __init__(self):
        super().__init__()
        self.backbone = frozen(backbone())
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
        self.head(self.backbone(torch.zeros(2, 3, 8, 8)))

    def forward(self, x):
        return self.head(self.backbone(x))

    def training_step(self, batch):
        return nn.functional.cross_entropy(self.head(self.backbone(batch["image"])), batch["label"])


class Images(Dataset):
    """Images that count how often they were read; noise, if any, is drawn anew each time."""

    def __init__(self, rows=ROWS, noise=0.0, as_dict=False):
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(rows, 3, 8, 8, generator=generator)
        self.y = torch.randint(0, 3, (rows,), generator=generator)
        self.noise, self.as_dict, self.reads = noise, as_dict, 0

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        self.reads += 1
        x = self.x[index] + (self.noise * torch.randn(3, 8, 8) if self.noise else 0)
        return {"image": x, "label": self.y[index]} if self.as_dict else (x, self.y[index])


def orders(rows=ROWS, epochs=3, batch=BATCH, drop_last=False):
    """The row numbers of every batch of some shuffled epochs."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(epochs):
        order = torch.randperm(rows, generator=generator).tolist()
        whole = rows - rows % batch if drop_last else rows
        yield [order[first : first + batch] for first in range(0, whole, batch)]


def step_of(model):
    """How a model computes its loss from a batch."""
    if hasattr(model, "training_step"):
        return model.training_step
    return lambda batch: nn.functional.cross_entropy(model(batch[0]), batch[1])
