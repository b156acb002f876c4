"""The same models and rows for every program."""

import itertools
import json
import os
import time

import torch
from torch import nn

MODELS = {
    "1M": {"widths": (784, 800, 400, 128, 10), "batch": 512, "steps": 120},
    "25M": {"widths": (1024, 4096, 4096, 1024, 10), "batch": 64, "steps": 40},
}
WARM_UP = 10


def make_model(name):
    torch.manual_seed(0)
    widths = MODELS[name]["widths"]
    layers = []
    for i, (before, after) in enumerate(itertools.pairwise(widths)):
        layers += [nn.Linear(before, after)] + ([nn.ReLU()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers)


def make_rows(name):
    generator = torch.Generator().manual_seed(1)
    rows = MODELS[name]["batch"] * MODELS[name]["steps"]
    x = torch.randn(rows, MODELS[name]["widths"][0], generator=generator)
    return x, torch.randint(0, 10, (rows,), generator=generator)


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


class Stopwatch:
    """When steps ended; the program's launch is in the environment."""

    def __init__(self):
        self.ends = []

    def step(self):
        self.ends.append(time.time())

    def report(self):
        first = self.ends[0] - float(os.environ["LAUNCHED"])
        durations = [b - a for a, b in zip(self.ends[WARM_UP:], self.ends[WARM_UP + 1 :], strict=False)]
        print("RESULT " + json.dumps({"first_step_s": first, "durations": durations}), flush=True)
