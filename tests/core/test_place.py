"""What is kept is whole or absent, on a disk and on stores without folders and without a rename."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from seamline.core import pickling, place
from seamline.core.checkpoint import (
    CARD,
    ModelDirectory,
    fit_folder,
    forget_old,
    newest,
    opened,
    read_card,
    step_folder,
    write_folder,
)
from seamline.core.errors import CheckpointError, UnavailableError, UnpicklableError
from tests.core.bucket import Bucket

KINDS = ("path", "file://", "memory://", "bucket://", "dir::file://", "dir::memory://")


@pytest.fixture(params=KINDS)
def root(request, tmp_path):
    """The same place in the words of each file system."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    if request.param == "path":
        return place.at(tmp_path / "kept")
    if request.param == "bucket://":
        return place.at(Bucket(tmp_path / "objects").url + "/kept")
    scheme = request.param
    return place.at(f"{scheme}{tmp_path}/kept")


@pytest.fixture
def bucket(tmp_path):
    return Bucket(tmp_path / "objects")


def write(path, content="weights", also=None):
    def fill(folder):
        (folder / "model").write_text(content)
        (folder / (also or "rest")).write_text("rest")

    write_folder(path, fill, card={"kind": "test"})


def content(path):
    with opened(path) as folder:
        assert isinstance(folder, Path)
        return (folder / "model").read_text()


def everything(path):
    return sorted(f"{each.name}/{inner}" if inner else each.name for each, inner in _below(path))


def _below(path):
    for each in path.iterdir():
        if each.is_file():
            yield each, ""
        else:
            yield from ((each, name) for name in everything(each))


def test_a_folder_is_written_read_and_replaced_whole(root):
    write(root, "old")
    assert content(root) == "old"
    assert everything(root) == ["model", "rest", CARD]
    for again in ("new", "newer", "newest"):
        write(root, again)
        assert content(root) == again
    names = [name.rpartition("/")[2] for name in everything(root)]
    assert sorted(names) == ["model", "rest", CARD], "something older was left"
    assert len(list(root.iterdir())) in (2, 3), "an empty folder was left"


def test_a_writer_that_fails_leaves_the_old_and_nothing_else(root):
    def fail(folder):
        (folder / "model").write_text("half")
        raise OSError("no ink")

    write(root, "old")
    before = everything(root)
    with pytest.raises(CheckpointError, match=r"could not be written \(no ink\); what was saved there before is unh"):
        write_folder(root, fail, card={})
    assert content(root) == "old"
    assert everything(root) == before


def test_checkpoints_are_found_kept_and_forgotten(root):
    directory = ModelDirectory(root)
    assert directory.newest_run() is None
    run = directory.new_run()
    fit = fit_folder(run, 1)
    assert not fit.exists()
    for step in (5, 10, 100):
        write(step_folder(fit, step), str(step))
    forget_old(fit, keep=2)
    assert sorted(each.name for each in fit.iterdir()) == ["step-0000000010", "step-0000000100"]
    assert directory.newest_run() == run
    assert directory.new_run().name == "run-0002"
    assert content(newest(fit)) == "100"
    place.keeper(step_folder(fit, 100)).remove(CARD)
    assert not step_folder(fit, 100).exists()
    assert content(newest(fit)) == "10"


def test_only_what_we_have_put_there_is_ours(root, tmp_path):
    keeper = place.keeper(root)
    assert keeper.is_free(CARD)
    write(root)
    assert keeper.is_free(CARD)
    keeper.remove(CARD)
    assert keeper.is_free(CARD)
    with place.keeper(root / "other").aside() as aside:
        (aside / "notes").write_text("mine")
        place.keeper(root / "other").put(aside, "", "notes")
    assert not keeper.is_free(CARD)


def test_tidying_leaves_alone_what_is_whole_or_not_ours(bucket):
    root = place.at(f"{bucket.url}/mine")
    directory = ModelDirectory(f"{bucket.url}/mine")
    fit = fit_folder(directory.new_run(), 1)
    write(step_folder(fit, 10))
    foreign = ("checkpoints/notes", "checkpoints/run-0001/fit-1/notes", "checkpoints/run-0001/fit-1/plots/loss")
    fs, path = root._store()
    for key in foreign:
        fs.pipe_file(f"{path}/{key}", b"mine")
    fs.pipe_file(f"{path}/checkpoints/run-0001/fit-1/step-0000000020/model", b"half")
    directory.clean()
    step = "mine/checkpoints/run-0001/fit-1/step-0000000010"
    assert bucket.objects() == sorted(
        [*(f"mine/{key}" for key in foreign), *(f"{step}/{n}" for n in ("model", "rest", CARD))]
    )


@pytest.mark.parametrize("key", ["rest", CARD])
def test_a_store_that_fails_halfway_leaves_the_old(bucket, key):
    root = place.at(f"{bucket.url}/kept")
    write(root, "old")
    before = bucket.objects()
    bucket.when(key, "refuse")
    with pytest.raises(CheckpointError, match="the store is out of reach"):
        write(root, "new")
    assert content(root) == "old"
    assert bucket.objects() == before


WRITER = """
import sys
from seamline.core import place
from tests.core.test_place import write
write(place.at(sys.argv[1]), "new")
"""


@pytest.mark.parametrize("key", [".begun", "model", "rest", CARD])
def test_a_writer_killed_halfway_leaves_the_old_and_what_it_left_is_swept_up(bucket, key, tmp_path):
    directory = ModelDirectory(f"{bucket.url}/kept")
    fit = fit_folder(directory.new_run(), 1)
    write(step_folder(fit, 10), "old")
    write(step_folder(fit, 20), "old too")
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    for half in (step_folder(fit, 20), step_folder(fit, 30)):
        bucket.when(key, "kill")
        killed = subprocess.run([sys.executable, "-c", WRITER, str(half)], env=environment, timeout=60, check=False)
        assert killed.returncode == -9
        assert content(newest(fit)) == "old too"
        assert place.keeper(half).is_free(CARD), "nobody could save there any more"
    assert len(list(tmp_path.glob("seamline-copy-*"))) == 1, "the second did not sweep up what the first left"
    directory.clean()
    assert content(newest(fit)) == "old too"
    assert not any(".begun" in key or "0030" in key for key in bucket.objects())
    write(step_folder(fit, 20), "newest")
    assert content(newest(fit)) == "newest"
    assert [name.rpartition("/")[2] for name in everything(step_folder(fit, 20))] == ["model", "rest", CARD]


def test_memory_is_of_one_process_and_says_so():
    here = place.at("memory://runs")
    with pytest.raises(UnpicklableError, match=r"memory://runs is memory of this process, .* all of them see"):
        pickling.dumps(here, "the place")
    there = place.at("bucket://%2Ftmp/runs")
    assert pickling.dumps(there, "the place")


def test_places_that_cannot_be(tmp_path):
    with pytest.raises(UnavailableError, match="s3:// needs a package that is not installed; pip install s3fs"):
        place.at("s3://bucket/runs")
    with pytest.raises(ValueError, match="nowhere://x cannot be read"):
        place.at("nowhere://x")
    write(tmp_path / "saved")
    card = json.loads((tmp_path / "saved" / CARD).read_text())
    (tmp_path / "saved" / CARD).write_text(json.dumps({**card, "part": "../other"}))
    with pytest.raises(CheckpointError, match="names files of another folder"):
        read_card(tmp_path / "saved")
