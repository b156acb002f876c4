"""Images alone, with labels, and with boxes."""

import json

import numpy as np
import pytest
from PIL import Image

from seamline.core.errors import DataError
from seamline.orca.data import DamagedFileError, read_coco, read_images, read_voc

COLORS = {"red": (255, 0, 0), "green": (0, 255, 0)}


def save(path, color, size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, color).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    for name, color in COLORS.items():
        for number in range(3):
            save(tmp_path / name / f"{number}.png", color, (8 + number, 6))
    return tmp_path


def label_of(path):
    return path.split("/")[-2]


def test_images_come_with_the_label_of_their_path(folder):
    shards = read_images(folder, label_of, num_shards=2).collect()
    assert [shard["label"].tolist() for shard in shards] == [["green"] * 3, ["red"] * 3]
    assert [image.shape for image in shards[1]["image"]] == [(6, 8, 3), (6, 9, 3), (6, 10, 3)]
    assert all((image == COLORS["red"]).all() for image in shards[1]["image"])
    assert shards[0]["path"][0] == str(folder / "green" / "0.png")


def test_images_of_one_size_are_one_array(folder):
    (shard,) = read_images(folder, lambda path: int("red" in path), size=(4, 5), num_shards=1).collect()
    assert (shard["image"].shape, shard["image"].dtype) == ((6, 4, 5, 3), np.uint8)
    assert (shard["image"][3] == COLORS["red"]).all()
    assert shard["label"].tolist() == [0, 0, 0, 1, 1, 1]


def test_without_a_label_function_there_is_no_label(folder):
    (shard,) = read_images(str(folder / "red" / "*.png"), num_shards=1).collect()
    assert list(shard) == ["image", "path"]


def test_jpegs_are_decoded_as_pillow_decodes_them(tmp_path):
    noise = np.random.default_rng(0).integers(0, 255, (40, 30, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg", quality=90)
    Image.fromarray(noise).convert("CMYK").save(tmp_path / "b.jpeg")
    found = read_images(tmp_path, num_shards=1).collect()[0]["image"]
    for name, image in zip(("a.jpg", "b.jpeg"), found, strict=True):
        with Image.open(tmp_path / name) as expected:
            np.testing.assert_array_equal(image, np.asarray(expected.convert("RGB")))


def test_a_damaged_image_is_named(tmp_path):
    (tmp_path / "a.png").write_bytes(b"\x89PNG no")
    with pytest.raises(DamagedFileError, match=r"a.png is not an image, or is damaged"):
        read_images(tmp_path).collect()


VOC = """<annotation><filename>{name}.png</filename>
<object><name>dog</name><difficult>1</difficult>
<bndbox><xmin>2</xmin><ymin>1</ymin><xmax>5</xmax><ymax>4</ymax></bndbox></object>
<object><name>{other}</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>8</xmax><ymax>6</ymax></bndbox></object>
</annotation>"""


@pytest.fixture
def voc(tmp_path):
    for number, other in enumerate(("cat", "person")):
        save(tmp_path / "JPEGImages" / f"{number}.png", COLORS["red"])
        (tmp_path / "Annotations").mkdir(exist_ok=True)
        (tmp_path / "Annotations" / f"{number}.xml").write_text(VOC.format(name=number, other=other))
    (tmp_path / "ImageSets" / "Main").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "train.txt").write_text("0  1\n1 -1\n")
    return tmp_path


def test_pascal_voc_gives_boxes_and_labels(voc):
    first, second = read_voc(str(voc), num_shards=2).collect()
    assert first["boxes"][0].tolist() == [[1, 0, 4, 3], [0, 0, 7, 5]]
    assert [shard["labels"][0].tolist() for shard in (first, second)] == [[11, 7], [11, 14]]
    assert first["difficult"][0].tolist() == [True, False]
    assert first["image"][0].shape == (6, 8, 3)


def test_what_is_wrong_with_a_pascal_voc_folder_is_named(voc):
    with pytest.raises(DataError, match=r"0.xml has a 'cat', which is not among the classes; give classes="):
        read_voc(str(voc), classes=["dog", "person"]).collect()
    (voc / "Annotations" / "1.xml").write_text("<annotation>")
    with pytest.raises(DamagedFileError, match=r"1.xml is not a Pascal VOC annotation"):
        read_voc(str(voc)).collect()
    with pytest.raises(FileNotFoundError, match=r"ImageSets/Main/val.txt"):
        read_voc(str(voc), "val")


def test_coco_gives_boxes_and_labels_and_keeps_images_without_any(tmp_path):
    for name in ("a", "b"):
        save(tmp_path / "images" / f"{name}.png", COLORS["green"])
    content = {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
        "annotations": [
            {"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4], "iscrowd": 0},
            {"image_id": 7, "category_id": 3, "bbox": [0, 0, 8, 6], "iscrowd": 1},
        ],
        "categories": [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    first, second = read_coco(str(tmp_path / "instances.json"), str(tmp_path / "images"), num_shards=2).collect()
    assert first["boxes"][0].tolist() == [[1, 2, 4, 6], [0, 0, 8, 6]]
    assert first["labels"][0].tolist() == [1, 0]
    assert first["category_ids"][0].tolist() == [18, 3]
    assert first["crowd"][0].tolist() == [False, True]
    assert second["boxes"][0].shape == (0, 4)
    assert second["image_id"].tolist() == [9]
    (tmp_path / "instances.json").write_text("{}")
    with pytest.raises(DamagedFileError, match=r"instances.json is not a COCO file of instances: KeyError\('images'\)"):
        read_coco(str(tmp_path / "instances.json"), str(tmp_path / "images"))
