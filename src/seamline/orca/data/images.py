"""Folders of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seamline.orca.data import pictures
from seamline.orca.data.files import File, Paths, StorageOptions, find_files
from seamline.orca.data.pictures import Size
from seamline.orca.data.sharing import even_shares, number_of_shards
from seamline.orca.xshards import XShards


def read_images(
    path: Paths,
    label_func: Callable[[str], Any] | None = None,
    *,
    size: Size | None = None,
    num_shards: int | None = None,
    storage_options: StorageOptions = None,
) -> XShards:
    """Image files as shards of ``{"image": ..., "label": ..., "path": ...}``, decoded where the shards lie.

    ``label_func(path)`` gives the label of a file; without it there is none. Images are RGB: an array of arrays, each
    of its own size, or with ``size=(height, width)`` one array of all. A folder is read with all that are in it.
    """
    pictures.check_installed()
    files = find_files(path, pictures.SUFFIXES, storage_options)
    shares = even_shares(files, [file.size for file in files], number_of_shards(num_shards))
    return XShards.from_items(shares, _Load(label_func, size))


@dataclass(frozen=True, slots=True)
class _Load:
    label_func: Callable[[str], Any] | None
    size: Size | None

    def __call__(self, files: Sequence[File]) -> dict[str, Any]:
        found = [pictures.decoded(file.read_all(), file.name, self.size) for file in files]
        shard: dict[str, Any] = {"image": pictures.together(found, self.size)}
        if self.label_func is not None:
            shard["label"] = _labels([self.label_func(file.name) for file in files])
        return {**shard, "path": pictures.objects([file.name for file in files])}


def _labels(labels: Sequence[Any]) -> Any:
    """Numbers as an array of them, anything else as an array of objects, whatever the length of its texts."""
    array = np.asarray(labels)
    return array if array.dtype.kind in "biuf" else pictures.objects(labels)
