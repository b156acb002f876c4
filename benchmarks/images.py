"""JPEG files to training batches on one core: Seamline's vision pipeline beside Pillow with torch.

Target: at least 2 x the images per second of Pillow for decode, Resize(256), RandomCrop(224), flip, ToTensor,
Normalize, batches of 32. Both sides use torch's ``DataLoader`` without workers and take turns, batch by batch;
time is that of the processor, so that others on the machine count less.
The files are made from scikit-learn's two photographs; large ones are mosaics of them.
"""

import argparse
import math
import random
import statistics
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from torch.utils.data import DataLoader

from benchmarks.measure import load
from seamline.nano.torch.vision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 32
BATCHES = 4
SIZES = {"500x375": (500, 375), "1920x1440": (1920, 1440)}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12)
    turns = parser.parse_args(arguments).turns
    torch.set_num_threads(1)
    cv2.setNumThreads(0)
    print(f"{'files':>10} {'pipeline':>34} {'':>7} {'seamline':>9} {'Pillow':>9} {'ratio':>6}  target   (images/s)")
    with tempfile.TemporaryDirectory() as folder:
        for name, size in SIZES.items():
            root = Path(folder) / name
            write_photographs(root, size, BATCH * BATCHES)
            for pipeline, target in PIPELINES.items():
                compare(name, root, pipeline, target if name == "500x375" else None, turns)
    print(f"one core, {turns} turns; {load()}")


def write_photographs(root, size, count):
    """Files like those of a photo collection: windows of real photographs, quality 90, 4:2:0."""
    draw = np.random.default_rng(0)
    (root / "photographs").mkdir(parents=True)
    scenes = [np.asarray(image) for image in load_sample_images().images]
    width, height = size
    across, down = (max(1, math.ceil(side / have)) for side, have in zip((width, height), (600, 400), strict=True))
    for number in range(count):
        tiles = [[scenes[draw.integers(2)] for _ in range(across)] for _ in range(down)]
        scene = np.concatenate([np.concatenate(row, axis=1) for row in tiles])
        top, left = draw.integers(scene.shape[0] - height + 1), draw.integers(scene.shape[1] - width + 1)
        window = scene[top : top + height, left : left + width]
        Image.fromarray(window).save(root / "photographs" / f"{number:04}.jpg", quality=90, subsampling="4:2:0")


def compare(files, root, pipeline, target, turns):
    ours, theirs = seamline_loader(root, pipeline), pillow_loader(root, pipeline)
    seconds = {"seamline": [], "Pillow": []}
    for turn in range(turns + 1):
        for _ in in_turns({"seamline": iter(ours), "Pillow": iter(theirs)}, seconds):
            pass
        if turn == 0:  # the files come from the disk and the libraries wake up
            seconds = {"seamline": [], "Pillow": []}
    for what, of in (("best", min), ("median", statistics.median)):
        rate = {name: BATCH / of(times) for name, times in seconds.items()}
        ratio = rate["seamline"] / rate["Pillow"]
        verdict = "" if target is None else f">= {target} {'reached' if ratio >= target else 'MISSED'}"
        rates = f"{rate['seamline']:9.0f} {rate['Pillow']:9.0f}"
        print(f"{files:>10} {pipeline:>34} {what:>7} {rates} {ratio:6.2f}  {verdict}", flush=True)


def in_turns(loaders, seconds):
    """A batch of each, one after the other, noting how long it took."""
    for _ in range(BATCHES):
        for name, batches in loaders.items():
            begin = time.process_time()
            images, _ = next(batches)
            seconds[name].append(time.process_time() - begin)
            assert images.shape == (BATCH, 3, 224, 224)
            assert images.dtype == torch.float32
            yield


def seamline_loader(root, pipeline):
    first = {
        "Resize, RandomCrop, flip": [transforms.Resize(256), transforms.RandomCrop(224)],
        "the same, NormalizeBatch.collate": [transforms.Resize(256), transforms.RandomCrop(224)],
        "RandomResizedCrop, flip": [transforms.RandomResizedCrop(224)],
    }[pipeline]
    by_batch = "NormalizeBatch" in pipeline
    last = [transforms.PILToTensor()] if by_batch else [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    transform = transforms.Compose([*first, transforms.RandomHorizontalFlip(), *last])
    collate = transforms.NormalizeBatch(MEAN, STD).collate if by_batch else None
    return DataLoader(datasets.ImageFolder(root, transform, seed=0), BATCH, shuffle=True, collate_fn=collate)


class PillowFolder:
    """The same pipeline as torchvision does it on PIL images."""

    def __init__(self, root, pipeline):
        self.paths = sorted((root / "photographs").iterdir())
        self.cut = resized_crop if "RandomResizedCrop" in pipeline else resize_and_crop
        self.mean, self.std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with self.paths[index].open("rb") as file:
            image = self.cut(Image.open(file).convert("RGB"))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        tensor = torch.from_numpy(np.array(image, copy=True)).permute(2, 0, 1).contiguous()
        return tensor.to(torch.float32).div(255).sub_(self.mean).div_(self.std), 0


def resize_and_crop(image):
    scale = 256 / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = random.randint(0, image.width - 224), random.randint(0, image.height - 224)
    return image.crop((left, top, left + 224, top + 224))


def resized_crop(image):
    top, left, height, width = transforms.RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3))
    image = image.crop((left, top, left + width, top + height))
    return image.resize((224, 224), Image.Resampling.BILINEAR)


def pillow_loader(root, pipeline):
    return DataLoader(PillowFolder(root, pipeline), BATCH, shuffle=True)


PIPELINES = {"Resize, RandomCrop, flip": 2, "the same, NormalizeBatch.collate": 2, "RandomResizedCrop, flip": None}


if __name__ == "__main__":
    main()
