"""Checkpoints are whole or absent."""

import json
import resource
from contextlib import contextmanager

import pytest

from seamline.core.checkpoint import (
    CARD,
    CheckpointPolicy,
    ModelDirectory,
    fit_folder,
    forget_old,
    newest,
    read_card,
    step_folder,
    write_folder,
)
from seamline.core.errors import CheckpointError


def write(path, content="weights"):
    write_folder(path, lambda folder: (folder / "model").write_text(content), card={"kind": "test"})


@contextmanager
def full_disk(limit_bytes):
    """Let this process write no file beyond a size: the system refuses as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path):
    write(tmp_path / "saved", "old")
    with full_disk(1000), pytest.raises(CheckpointError, match=r"could not be written .* unharmed"):
        write(tmp_path / "saved", "new" * 1000)
    assert (tmp_path / "saved" / "model").read_text() == "old"
    read_card(tmp_path / "saved")
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_folder_is_replaced_whole(tmp_path):
    write(tmp_path / "saved", "old")
    write(tmp_path / "saved", "new")
    assert (tmp_path / "saved" / "model").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda folder: (folder / "model").write_text("short"), "damaged: model should have 7 bytes"),
        (lambda folder: (folder / "model").unlink(), "damaged"),
        (lambda folder: (folder / CARD).unlink(), f"no {CARD}"),
        (lambda folder: (folder / CARD).write_text("{"), "not readable JSON"),
        (lambda folder: (folder / CARD).write_text(json.dumps({"format": 99})), "format 99"),
    ],
)
def test_a_harmed_checkpoint_says_what_is_wrong(tmp_path, harm, message):
    write(tmp_path / "saved")
    harm(tmp_path / "saved")
    with pytest.raises(CheckpointError, match=message):
        read_card(tmp_path / "saved")


def test_the_newest_is_of_the_last_run_and_never_a_damaged_one(tmp_path):
    directory = ModelDirectory(tmp_path)
    assert directory.newest_run() is None
    first = directory.new_run()
    write(step_folder(fit_folder(first, 1), 500))
    second = directory.new_run()
    assert second.name == "run-0002"
    fit = fit_folder(second, 1)
    write(step_folder(fit, 10))
    write(step_folder(fit, 20))
    assert directory.newest_run() == second
    assert newest(fit) == step_folder(fit, 20)
    (step_folder(fit, 20) / "model").unlink()
    assert newest(fit) == step_folder(fit, 10)
    (step_folder(fit, 10) / "model").unlink()
    assert directory.newest_run() == first


def test_what_a_killed_writer_left_is_cleaned_up(tmp_path):
    directory = ModelDirectory(tmp_path)
    fit = fit_folder(directory.new_run(), 1)
    write(step_folder(fit, 10), "ten")
    (fit / ".writing-step-0000000020-77").mkdir()
    # Killed between taking the old folder away and putting the new one in its place:
    step_folder(fit, 10).rename(fit / ".replaced-step-0000000010-77")
    assert newest(fit) is None
    directory.clean()
    assert newest(fit) == step_folder(fit, 10)
    assert [path.name for path in fit.iterdir()] == ["step-0000000010"]


def test_an_interrupted_write_leaves_nothing_and_can_be_repeated(tmp_path):
    def interrupt(folder):
        (folder / "model").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "saved", interrupt, card={})
    assert not list(tmp_path.iterdir())
    write(tmp_path / "saved")


def test_only_the_newest_are_kept(tmp_path):
    for step in (5, 10, 100):
        write(step_folder(tmp_path, step))
    forget_old(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-0000000010", "step-0000000100"]
    forget_old(tmp_path, keep=None)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_policy_says_when_and_refuses_nonsense():
    policy = CheckpointPolicy(every_steps=5, every_epochs=2)
    assert [step for step in range(1, 12) if policy.due_after_step(step)] == [5, 10]
    assert [epoch for epoch in range(4) if policy.due_after_epoch(epoch)] == [1, 3]
    with pytest.raises(ValueError, match="`every_steps >= 1` must hold, but got every_steps=0"):
        CheckpointPolicy(every_steps=0)
