"""Small models of many families, with a sample of their inputs."""

import torch
from torch import nn
from torch.nn.functional import relu


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells = kind(24, 96, num_layers=2, batch_first=True)
        self.head = nn.Linear(96, 5)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(500, 96)
        layer = nn.TransformerEncoderLayer(96, 4, 192, batch_first=True, dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(96, 7)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)).mean(1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 24, 3, padding=1)
        self.deep = nn.Conv2d(24, 48, 3, padding=1, stride=2)
        self.up = nn.ConvTranspose2d(48, 24, 2, stride=2)
        self.out = nn.Conv2d(48, 2, 1)

    def forward(self, image):
        first = relu(self.down(image))
        return self.out(torch.cat([first, relu(self.up(relu(self.deep(first))))], 1))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Conv2d(3, 16, 3, stride=2)
        self.head = nn.Linear(16 + 10, 4)

    def forward(self, image, facts):
        return self.head(torch.cat([relu(self.image(image)).mean((2, 3)), facts], 1))


class Answers(nn.Module):
    """Several outputs, in a tuple or a dict."""

    def __init__(self, as_dict):
        super().__init__()
        self.as_dict = as_dict
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.one, self.other = nn.Linear(256, 3), nn.Linear(256, 8)

    def forward(self, x):
        hidden = self.body(x)
        if self.as_dict:
            return {"scores": self.one(hidden), "extra": {"box": self.other(hidden)}}
        return self.one(hidden), [self.other(hidden)]


def mlp():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def depthwise():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2), nn.Hardswish(), nn.Conv2d(32, 32, 3, groups=32, padding=1), nn.BatchNorm2d(32),
        nn.Conv2d(32, 96, 1), nn.Hardswish(), nn.Conv2d(96, 96, 5, groups=96, padding=2), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(96, 10),
    )  # fmt: skip


FAMILIES = {
    "mlp": (mlp, lambda n: (torch.randn(n, 64),)),
    "cnn": (cnn, lambda n: (torch.randn(n, 3, 64, 64),)),
    "depthwise": (depthwise, lambda n: (torch.randn(n, 3, 64, 64),)),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda n: (torch.randn(n, 20, 24),)),
    "gru": (lambda: Recurrent(nn.GRU), lambda n: (torch.randn(n, 20, 24),)),
    "transformer": (Encoder, lambda n: (torch.randint(0, 500, (n, 30)),)),
    "u-net": (UNet, lambda n: (torch.randn(n, 3, 48, 48),)),
    "two inputs": (TwoInputs, lambda n: (torch.randn(n, 3, 32, 32), torch.randn(n, 10))),
    "several outputs": (lambda: Answers(False), lambda n: (torch.randn(n, 64),)),
    "dict of outputs": (lambda: Answers(True), lambda n: (torch.randn(n, 64),)),
}


def make(family, rows=8):
    """A model in evaluation mode and the arguments of a call."""
    torch.manual_seed(0)
    build, inputs = FAMILIES[family]
    return build().eval(), inputs(rows)
