"""A folder of images with a folder for each class."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import cv2
import torch
from torch.utils.data import Dataset, get_worker_info

from seamline.core import rng
from seamline.nano.torch.vision import randomness
from seamline.nano.torch.vision.datasets.sample_log import SampleLog
from seamline.nano.torch.vision.encoded import Encoded, UnreadableImageError
from seamline.nano.torch.vision.transforms.compose import run

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


class ImageFolder(Dataset[tuple[Any, Any]]):
    """Images in ``root/class/...``, and the number of their class.

    An image comes as a PIL image, or as what ``transform`` makes of it. Random transforms draw from a generator that
    depends on ``seed``, the epoch and the sample alone, so that any number of loading workers gives the same images.
    The epoch is what ``set_epoch`` was told, or how often the sample was drawn before. Without ``seed`` it is torch's,
    as it is when the data set is made.

    A damaged file is an ``UnreadableImageError`` that names it. With ``on_error="skip"`` the next good sample takes its
    place; ``skipped`` counts the damaged files that were met, in all loading workers, and ``skipped_files`` names them.
    """

    def __init__(
        self,
        root: str | Path,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        on_error: Literal["raise", "skip"] = "raise",
        seed: int | None = None,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f'on_error is "raise" or "skip", but got {on_error!r}')
        self.root = os.fspath(root)
        self.transform = transform
        self.target_transform = target_transform
        self.loader = loader
        self.on_error = on_error
        self.seed = torch.initial_seed() if seed is None else seed
        self.classes, self.class_to_idx = self.find_classes(self.root)
        self.samples = self.make_dataset(self.root, self.class_to_idx, is_valid_file, allow_empty)
        self.targets = [target for _, target in self.samples]
        self.imgs = self.samples
        self._log = SampleLog(len(self.samples))

    def find_classes(self, directory: str | Path) -> tuple[list[str], dict[str, int]]:
        """The names of the folders, in order, and their numbers; override it to choose other classes."""
        classes = sorted(entry.name for entry in os.scandir(directory) if entry.is_dir())
        if not classes:
            raise FileNotFoundError(f"{directory} has no folders; there has to be one for each class")
        return classes, {name: number for number, name in enumerate(classes)}

    @staticmethod
    def make_dataset(
        directory: str | Path,
        class_to_idx: dict[str, int],
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> list[tuple[str, int]]:
        """Every image file with the number of its class, in the order of their names."""
        is_valid = is_valid_file or (lambda path: path.lower().endswith(IMG_EXTENSIONS))
        found = {name: [path for path in _files(Path(directory) / name) if is_valid(path)] for name in class_to_idx}
        empty = sorted(name for name, paths in found.items() if not paths)
        if empty and not allow_empty:
            kinds = "" if is_valid_file else f" ({', '.join(IMG_EXTENSIONS)})"
            raise FileNotFoundError(
                f"no images{kinds} in {', '.join(str(Path(directory) / name) for name in empty)}; "
                "add some, remove the folder, or pass allow_empty=True"
            )
        return [(path, class_to_idx[name]) for name in sorted(found) for path in found[name]]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        index = range(len(self.samples))[index]
        _one_thread_in_a_worker()
        seed = rng.derive(self.seed, self._log.draw(index), index)
        for neighbour in self._replacements(index):
            try:
                return self._sample(neighbour, seed)
            except UnreadableImageError as error:
                if self.on_error == "raise":
                    raise
                self._skip(neighbour, error)
        raise UnreadableImageError(f"none of the {len(self)} files in {self.root} is a readable image")

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next, before it is iterated; loading workers that stay learn of it too."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative, but got {epoch}")
        self._log.set_epoch(epoch)

    @property
    def skipped(self) -> int:
        """How many damaged files were met so far."""
        return len(self._log.damaged)

    @property
    def skipped_files(self) -> list[str]:
        return [self.samples[index][0] for index in self._log.damaged]

    def _replacements(self, index: int) -> Iterator[int]:
        """The sample itself, then those after it, without the ones that are known to be damaged."""
        for step in range(len(self.samples)):
            neighbour = (index + step) % len(self.samples)
            if self.on_error == "raise" or not self._log.is_damaged(neighbour):
                yield neighbour

    def _sample(self, index: int, seed: int) -> tuple[Any, Any]:
        path, target = self.samples[index]
        image = self._load(path)
        with randomness.OfSample(seed):
            image = run(self.transform, image)
            return image, target if self.target_transform is None else run(self.target_transform, target)

    def _load(self, path: str) -> Any:
        if self.loader is None:
            return Encoded(path)
        try:
            return self.loader(path)
        except (OSError, SyntaxError, ValueError) as error:
            raise UnreadableImageError(f"{path} is not an image, or is damaged: {error}") from error

    def _skip(self, index: int, error: UnreadableImageError) -> None:
        first = self.skipped == 0
        self._log.note_damaged(index)
        if first:
            warnings.warn(f"skipped: {error}; see skipped_files for all of them", stacklevel=3)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__}", f"    {len(self)} images of {len(self.classes)} classes in {self.root}"]
        return "\n".join([*lines, f"    {self.transform!r}".replace("\n", "\n    ")])


def _files(folder: Path) -> Iterator[str]:
    for place, _, names in sorted(os.walk(folder, followlinks=True)):
        yield from (os.path.join(place, name) for name in sorted(names))  # noqa: PTH118 - a million of them


def _one_thread_in_a_worker() -> None:
    """Loading workers share the cores among themselves; OpenCV's threads would only get in their way."""
    if get_worker_info() is not None and cv2.getNumThreads() > 1:
        cv2.setNumThreads(0)
