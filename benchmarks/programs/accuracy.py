"""A small network on 5,000 real digits until it has learned them: what it knows in the end, with either trainer."""

import json
import sys

import lightning.pytorch as pl
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.programs.training import Classifier
from seamline.nano.torch import Trainer


class Learner(Classifier):
    def __init__(self):
        body = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64 * 25, 128), nn.ReLU(),
        )  # fmt: skip
        super().__init__(body, nn.Linear(128, 10), 0.02)
        self.curve = []

    def validation_step(self, batch, _):
        self.log("right", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        self.curve.append(float(self.trainer.callback_metrics["right"]))


def main(form, epochs, file):
    table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images, labels = torch.tensor(table[:, :-1] / 255).reshape(-1, 1, 28, 28), torch.tensor(table[:, -1]).long()
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(0))
    train, test = (TensorDataset(images[some], labels[some]) for some in (order[:4000], order[4000:]))
    torch.manual_seed(0)
    model = Learner()
    trainer = (Trainer if form == "ours" else pl.Trainer)(
        max_epochs=int(epochs), logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", num_sanity_val_steps=0,
    )  # fmt: skip
    trainer.fit(model, DataLoader(train, 64, shuffle=True), DataLoader(test, 500))
    print("RESULT " + json.dumps({"curve": model.curve}))


if __name__ == "__main__":
    main(*sys.argv[1:])
