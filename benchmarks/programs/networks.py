"""Networks of well-known sizes with random weights: what users serve, without what they would have to download."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ROWS = 128
TOKENS, LENGTH = 30522, 128


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            *convolution(before, width, 1),
            nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(width, 4 * width, 1),
        )
        same = before == 4 * width and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*convolution(before, 4 * width, 1, stride))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def convolution(before, after, size, stride=1):
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(after)


def resnet50():
    """25.6 M parameters, stride in the 3x3 convolutions, as torchvision has it."""
    layers = [*convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    before = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(before, width, stride if block == 0 else 1))
            before = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))


class Encoder(nn.Module):
    """109 M parameters, as BERT base; token ids in, the last hidden states out."""

    def __init__(self, layers=12, hidden=768, heads=12):
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, hidden)
        self.places = nn.Embedding(512, hidden)
        self.norm = nn.LayerNorm(hidden)
        # Not nn.TransformerEncoder: its layers start as copies of one, and engines would store one for all.
        self.layers = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, activation="gelu", batch_first=True)
                for _ in range(layers)
            )
        )

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.layers(self.norm(self.tokens(ids) + self.places(places)))


def mlp():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def images():
    return torch.randn(ROWS, 3, 224, 224)


def token_ids():
    return torch.randint(0, TOKENS, (ROWS, LENGTH))


def features():
    return torch.randn(ROWS, 64)


NETWORKS = {"resnet50": (resnet50, images), "bert": (Encoder, token_ids), "mlp": (mlp, features)}


def make(name):
    """A network and the rows to calibrate it with."""
    torch.manual_seed(0)
    network, rows = NETWORKS[name]
    return network().eval(), DataLoader(TensorDataset(rows()), batch_size=32)
