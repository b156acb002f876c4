"""The place where features are kept: shared, bounded, and never left behind."""

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from seamline.frameworks.torch.frozen.cache import Column, NoRoomError, Room, RowCache
from seamline.frameworks.torch.frozen.folder import PREFIX, sweep
from tests.frameworks.frozen.networks import ROWS, Images, in_a_row
from tests.frameworks.frozen.training import find, make, train

COLUMNS = [Column((3,), torch.float32), Column((), torch.bool), Column((2, 2), torch.bfloat16)]


@pytest.fixture(autouse=True)
def _own_place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def left_behind():
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def run_python(code, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        **options,
    )


HOLDER = """
    import sys, torch
    import numpy as np
    from pathlib import Path
    from seamline.frameworks.torch.frozen.cache import Column, Room, RowCache
    cache = RowCache(Room(6, Path(sys.argv[1])), [Column((3,), torch.float32)])
    rows = np.array([3, 4, 5])
    cache.write(0, rows, torch.full((3, 3), 7.0))
    cache.fill(rows)
    print("there", flush=True)
    sys.stdin.readline()
    print(cache.read(0, np.array([0]))[0].tolist(), cache.missing(np.arange(6)).tolist(), cache.dropped)
"""


def test_rows_come_back_as_they_were_written():
    cache = RowCache(Room(10), COLUMNS)
    numbers = np.array([7, 2, 5])
    values = [torch.randn(3, 3), torch.tensor([True, False, True]), torch.randn(3, 2, 2).bfloat16()]
    for column, value in enumerate(values):
        cache.write(column, numbers, value)
    assert cache.missing(numbers).tolist() == [7, 2, 5]
    cache.fill(numbers)
    assert cache.missing(np.arange(10)).tolist() == [0, 1, 3, 4, 6, 8, 9]
    for column, value in enumerate(values):
        back = cache.read(column, numbers[::-1])
        assert back.dtype == value.dtype
        assert torch.equal(back, value.flip(0))
    cache.close()
    assert left_behind() == []


def test_two_processes_share_one_folder_and_the_last_removes_it(tmp_path):
    folder = tmp_path / "shared"
    cache = RowCache(Room(6, folder), COLUMNS[:1])
    other = run_python(HOLDER, folder)
    assert other.stdout.readline() == "there\n"
    assert torch.equal(cache.read(0, np.array([4])), torch.full((1, 3), 7.0))
    assert cache.missing(np.arange(6)).tolist() == [0, 1, 2]
    cache.write(0, np.array([0]), torch.ones(1, 3))
    cache.fill(np.array([0]))
    cache.drop()
    cache.close()
    assert folder.exists()
    out, err = other.communicate("go on\n", timeout=60)
    assert out == "[1.0, 1.0, 1.0] [1, 2] True\n", err
    assert not folder.exists()


def test_what_a_killed_process_leaves_is_swept_up_by_the_next(tmp_path):
    folder = tmp_path / f"{PREFIX}left"
    other = run_python(HOLDER, folder)
    assert other.stdout.readline() == "there\n"
    sweep(tmp_path)
    assert (folder / "filled").exists(), "a folder in use was swept away"
    os.kill(other.pid, signal.SIGKILL)
    other.communicate(timeout=60)
    assert folder.exists()
    cache = RowCache(Room(6), COLUMNS)
    assert left_behind() == [cache.path]


def test_what_a_killed_process_leaves_is_not_taken_for_features(tmp_path):
    folder = tmp_path / "mine"
    other = run_python(HOLDER, folder)
    assert other.stdout.readline() == "there\n"
    other.kill()
    other.communicate(timeout=60)
    cache = RowCache(Room(6, folder), COLUMNS[:1])
    assert len(cache.missing(np.arange(6))) == 6


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(NoRoomError, match="holds other files"):
        RowCache(Room(6, tmp_path), COLUMNS)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_full_disk_is_an_answer_at_the_start():
    """The limit on file sizes is the kernel's, as a full disk would be."""
    code = """
        import resource, sys, tempfile, torch
        tempfile.tempdir = sys.argv[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        from seamline.frameworks.torch.frozen.cache import Column, NoRoomError, Room, RowCache
        try:
            RowCache(Room(1000), [Column((3,), torch.float32)])
        except NoRoomError as problem:
            print(problem)
    """
    out, err = run_python(code, tempfile.gettempdir()).communicate(timeout=60)
    assert out == "no room for 0 MB of features: File too large\n", err
    assert left_behind() == []


def test_more_than_the_limit_is_refused_and_training_goes_on():
    model, data, said = make(in_a_row), Images(), []
    with find(model, data, said=said) as part:
        assert part.cache(10**6, limit_bytes=10**6) is False
        assert "are more than the limit of 1 MB" in said[-1]
        assert len(train(model, data, part=part, epochs=1)) == 6
    assert left_behind() == []


def test_nothing_is_left_behind_after_the_part_is_removed():
    model, data = make(in_a_row), Images()
    part = find(model, data)
    part.install()
    part.cache(ROWS)
    assert len(left_behind()) == 1
    part.remove()
    assert left_behind() == []
