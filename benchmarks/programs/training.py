"""One program of ``benchmarks.training``: a Lightning program as it is, or with Seamline's import."""

import itertools
import json
import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from benchmarks.programs.networks import resnet50
from seamline.nano.torch import Trainer
from seamline.nano.torch.vision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class PillowFolder(Dataset):
    """Images of a folder through Pillow: Resize(256), CenterCrop(224), ToTensor, Normalize."""

    def __init__(self, root):
        self.files = sorted(Path(root).rglob("*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        with Image.open(file) as image:
            image = image.convert("RGB")
        scale = 256 / min(image.size)
        image = image.resize([round(side * scale) for side in image.size], Image.Resampling.BILINEAR)
        left, top = (image.width - 224) // 2, (image.height - 224) // 2
        pixels = np.asarray(image.crop((left, top, left + 224, top + 224)))
        tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy()).float().div(255)
        tensor = (tensor - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
        return tensor, self.classes.index(file.parent.name)


def our_folder(root):
    steps = [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return datasets.ImageFolder(root, transforms.Compose(steps))


class Classifier(pl.LightningModule):
    def __init__(self, body, head, rate):
        super().__init__()
        self.body, self.head, self.rate = body, head, rate

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], self.rate, momentum=0.9)


class Frozen(Classifier):
    def __init__(self, body, head, rate):
        super().__init__(body.requires_grad_(False), head, rate)
        self.body.eval()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.LSTM(64, 256, num_layers=2, batch_first=True)

    def forward(self, x):
        return self.cells(x)[0][:, -1]


def resnet_body():
    return resnet50()[:-1]


def rows(count, *shape):
    generator = torch.Generator().manual_seed(1)
    return TensorDataset(torch.randn(count, *shape, generator=generator), torch.arange(count) % 10)


def mlp(width=512):
    return nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())


CASES = {
    "scratch": {"batch": 16, "model": lambda: Classifier(resnet_body(), nn.Linear(2048, 2), 0.01)},
    "transfer": {"batch": 32, "model": lambda: Frozen(resnet_body(), nn.Linear(2048, 2), 0.01)},
    "mlp": {
        "batch": 128,
        "model": lambda: Classifier(mlp(), nn.Linear(512, 10), 0.01),
        "data": lambda: rows(128 * 400, 256),
    },
    "lstm": {
        "batch": 32,
        "model": lambda: Classifier(Recurrent(), nn.Linear(256, 10), 0.01),
        "data": lambda: rows(32 * 100, 32, 64),
    },
}


class Watch(pl.Callback):
    """When steps ended, and what the loss was."""

    def __init__(self):
        self.ends, self.losses = [], []

    def on_train_epoch_start(self, *_):
        self.ends.append([time.perf_counter()])

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.ends[-1].append(time.perf_counter())
        self.losses.append(float(outputs["loss"]))


def main(case, form, epochs, root):
    wanted = CASES[case]
    torch.manual_seed(0)
    model = wanted["model"]()
    data = wanted["data"]() if "data" in wanted else our_folder(root) if form == "ours" else PillowFolder(root)
    watch = Watch()
    trainer = (Trainer if form == "ours" else pl.Trainer)(
        max_epochs=int(epochs), logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", callbacks=[watch],
    )  # fmt: skip
    begin = time.perf_counter()
    trainer.fit(model, DataLoader(data, wanted["batch"], shuffle=True))
    steps = [[b - a for a, b in itertools.pairwise(ends)] for ends in watch.ends]
    print("RESULT " + json.dumps({"run_s": time.perf_counter() - begin, "steps": steps, "losses": watch.losses}))


if __name__ == "__main__":
    main(*sys.argv[1:])
