"""Records of images, arrays and scalars, written and read."""

import json
from io import BytesIO

import fsspec
import numpy as np
import pytest
from PIL import Image

from seamline.core.errors import SeamlineError
from seamline.orca.data import FeatureType, ParquetDataset, SchemaField

SCHEMA = {
    "image": SchemaField(FeatureType.IMAGE),
    "x": SchemaField(FeatureType.NDARRAY, "float32", (2, 3)),
    "any": SchemaField(FeatureType.NDARRAY, "int16"),
    "label": SchemaField(FeatureType.SCALAR, "int64"),
    "name": SchemaField("scalar", "string"),
}


def picture(number):
    stream = BytesIO()
    Image.new("RGB", (4 + number, 3), (number, 0, 0)).save(stream, "PNG")
    return stream.getvalue()


def records(count, folder):
    for number in range(count):
        image = picture(number)
        if number % 2:
            (folder / f"{number}.png").write_bytes(image)
            image = folder / f"{number}.png"
        x = np.full((2, 3), number / 2, np.float32)
        yield {"image": image, "x": x, "any": np.arange(number), "label": number, "name": f"größe {number}"}


def test_records_come_back_as_they_were_in_shards_of_arrays(tmp_path):
    ParquetDataset.write(tmp_path / "set", records(10, tmp_path), SCHEMA, block_size=3)
    shards = ParquetDataset.read(tmp_path / "set", num_shards=3).collect()
    assert len(shards) == 3
    together = {name: np.concatenate([shard[name] for shard in shards]) for name in SCHEMA}
    assert [image.shape for image in together["image"]] == [(3, 4 + number, 3) for number in range(10)]
    assert together["image"][5][0, 0].tolist() == [5, 0, 0]
    assert (together["x"].shape, together["x"].dtype) == ((10, 2, 3), np.float32)
    assert together["x"][7].tolist() == [[3.5] * 3] * 2
    assert [array.tolist() for array in together["any"]] == [list(range(number)) for number in range(10)]
    assert (together["label"].tolist(), together["label"].dtype) == (list(range(10)), np.int64)
    assert together["name"][9] == "größe 9"


def test_the_schema_is_a_json_file_beside_the_records(tmp_path):
    ParquetDataset.write(tmp_path / "set", [], SCHEMA)
    fields = json.loads((tmp_path / "set" / "_schema.json").read_text())["features"]
    assert fields["x"] == {"feature_type": "ndarray", "dtype": "float32", "shape": [2, 3]}
    (shard,) = ParquetDataset.read_as_xshards(tmp_path / "set").collect()
    assert shard["x"].shape == (0, 2, 3)


def test_other_file_systems_work_the_same(tmp_path):
    schema = {"label": SCHEMA["label"]}
    ParquetDataset.write("memory://set", [{"label": 3}], schema)
    assert ParquetDataset.read("memory://set", num_shards=1).collect()[0]["label"].tolist() == [3]
    assert fsspec.filesystem("memory").exists("/set/_schema.json")


def test_what_is_written_over_is_only_ever_our_own(tmp_path):
    schema = {"label": SCHEMA["label"]}
    for label in (1, 2):
        ParquetDataset.write(tmp_path / "set", [{"label": label}] * (5 - label), schema, block_size=1)
    shards = ParquetDataset.read(tmp_path / "set").collect()
    assert np.concatenate([shard["label"] for shard in shards]).tolist() == [2, 2, 2]
    with pytest.raises(FileExistsError, match="is not empty; choose another"):
        ParquetDataset.write(tmp_path / "set", [], schema, write_mode="error")
    (tmp_path / "set" / "thesis.txt").write_text("mine")
    with pytest.raises(SeamlineError, match=r"holds files that ParquetDataset.write has not written"):
        ParquetDataset.write(tmp_path / "set", [], schema)
    assert (tmp_path / "set" / "thesis.txt").exists()


def test_an_unfinished_folder_is_not_taken_for_a_finished_one(tmp_path):
    def breaks():
        yield {"label": 1}
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ParquetDataset.write(tmp_path / "set", breaks(), {"label": SCHEMA["label"]}, block_size=1)
    with pytest.raises(FileNotFoundError, match=r"has no _schema.json: it was not written .* or not to its end"):
        ParquetDataset.read(tmp_path / "set")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"x": np.zeros((2, 2))}, r"a record has 'x' of shape \(2, 2\), but the schema says \(2, 3\)"),
        ({"y": 1}, "a record has no 'x', which the schema has; it has 'y'"),
    ],
)
def test_a_record_that_does_not_fit_the_schema_is_refused(tmp_path, record, message):
    with pytest.raises(ValueError, match=message):
        ParquetDataset.write(tmp_path / "set", [record], {"x": SCHEMA["x"]})


def test_arrays_are_not_images(tmp_path):
    with pytest.raises(TypeError, match="an image is a path or the bytes of a file, but got ndarray; arrays are"):
        ParquetDataset.write(tmp_path / "set", [{"image": np.zeros((2, 2, 3))}], {"image": SCHEMA["image"]})
