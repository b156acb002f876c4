"""Images with boxes around what is to be seen in them: Pascal VOC and COCO."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from seamline.core.errors import DataError
from seamline.orca.data import pictures
from seamline.orca.data.files import File, StorageOptions, find_files, joined
from seamline.orca.data.pictures import DamagedFileError, objects
from seamline.orca.data.sharing import even_shares, number_of_shards
from seamline.orca.xshards import XShards

VOC_CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)


def read_voc(
    root: str,
    split: str = "train",
    *,
    classes: Sequence[str] = VOC_CLASSES,
    num_shards: int | None = None,
    storage_options: StorageOptions = None,
) -> XShards:
    """The images of a Pascal VOC folder that ``ImageSets/Main/<split>.txt`` lists, with their boxes.

    A shard is a dict of arrays: ``image``, ``boxes`` (left, top, right, bottom of each), ``labels`` (places in
    ``classes``), ``difficult`` and ``path``. Boxes count pixels from 0, where the files count from 1.
    """
    pictures.check_installed()
    (listing,) = find_files(joined(root, f"ImageSets/Main/{split}.txt"), storage_options=storage_options)
    names = [line.split()[0] for line in listing.read_all().decode().splitlines() if line.strip()]
    scenes = [_Voc(root, name, tuple(classes), dict(storage_options or {})) for name in names]
    return XShards.from_items(even_shares(scenes, [1] * len(scenes), number_of_shards(num_shards)), _scenes)


def read_coco(
    annotations: str,
    images: str,
    *,
    num_shards: int | None = None,
    storage_options: StorageOptions = None,
) -> XShards:
    """The images that a COCO file of instances lists, found in the folder ``images``, with their boxes.

    A shard is a dict of arrays: ``image``, ``boxes`` (left, top, right, bottom of each), ``labels`` (from 0, in the
    order of COCO's own numbers), ``category_ids`` (those numbers), ``crowd``, ``image_id`` and ``path``. An image
    without boxes has none and is kept.
    """
    pictures.check_installed()
    (file,) = find_files(annotations, storage_options=storage_options)
    try:
        content = json.loads(file.read_all())
        boxes: dict[int, list[Mapping[str, Any]]] = {image["id"]: [] for image in content["images"]}
        for box in content["annotations"]:
            boxes[box["image_id"]].append(box)
        labels = {number: label for label, number in enumerate(sorted(kind["id"] for kind in content["categories"]))}
        scenes = [
            _Coco(
                joined(images, image["file_name"]), image["id"], boxes[image["id"]], labels, dict(storage_options or {})
            )
            for image in content["images"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{file.name} is not a COCO file of instances: {error!r}") from error
    return XShards.from_items(even_shares(scenes, [1] * len(scenes), number_of_shards(num_shards)), _scenes)


@dataclass(frozen=True, slots=True)
class _Voc:
    root: str
    name: str
    classes: tuple[str, ...]
    options: Mapping[str, Any] = field(repr=False)

    def load(self) -> dict[str, Any]:
        notes = File(joined(self.root, f"Annotations/{self.name}.xml"), 0, options=self.options)
        try:
            tree = ElementTree.fromstring(notes.read_all())
            found = [_voc_object(item) for item in tree.iter("object")]
            picture = tree.findtext("filename") or f"{self.name}.jpg"
        except (ElementTree.ParseError, AttributeError, TypeError, ValueError) as error:
            raise DamagedFileError(f"{notes.name} is not a Pascal VOC annotation: {error}") from error
        for name, _, _ in found:
            if name not in self.classes:
                raise DataError(f"{notes.name} has a {name!r}, which is not among the classes; give classes=[...]")
        file = File(joined(self.root, f"JPEGImages/{picture}"), 0, options=self.options)
        return {
            "image": pictures.decoded(file.read_all(), file.name),
            "boxes": _boxes([box for _, box, _ in found]),
            "labels": np.array([self.classes.index(name) for name, _, _ in found], np.int64),
            "difficult": np.array([difficult for _, _, difficult in found], bool),
            "path": file.name,
        }


def _voc_object(item: ElementTree.Element) -> tuple[str, list[float], bool]:
    corners = item.find("bndbox")
    if corners is None:
        raise ValueError("an object without bndbox")
    box = [float(corners.findtext(side) or "nothing") - 1 for side in ("xmin", "ymin", "xmax", "ymax")]
    return (item.findtext("name") or "").strip(), box, item.findtext("difficult", "0").strip() == "1"


@dataclass(frozen=True, slots=True)
class _Coco:
    path: str
    image_id: int
    found: Sequence[Mapping[str, Any]]
    labels: Mapping[int, int]
    options: Mapping[str, Any] = field(repr=False)

    def load(self) -> dict[str, Any]:
        file = File(self.path, 0, options=self.options)
        numbers = [box["category_id"] for box in self.found]
        corners = [(x, y, x + width, y + height) for x, y, width, height in (box["bbox"] for box in self.found)]
        return {
            "image": pictures.decoded(file.read_all(), file.name),
            "boxes": _boxes(corners),
            "labels": np.array([self.labels[number] for number in numbers], np.int64),
            "category_ids": np.array(numbers, np.int64),
            "crowd": np.array([box.get("iscrowd", 0) for box in self.found], bool),
            "image_id": self.image_id,
            "path": file.name,
        }


def _boxes(boxes: Sequence[Sequence[float]]) -> npt.NDArray[np.float32]:
    return np.asarray(boxes, np.float32).reshape(-1, 4)


def _scenes(scenes: Sequence[_Voc | _Coco]) -> dict[str, Any]:
    """Images and what belongs to them as a dict of arrays; what differs in length is an array of arrays."""
    rows = [scene.load() for scene in scenes]
    shard: dict[str, Any] = {name: objects([row[name] for row in rows]) for name in (rows[0] if rows else ())}
    if "image_id" in shard:
        shard["image_id"] = shard["image_id"].astype(np.int64)
    return shard
