"""The inline engine: one worker, here."""

import os

import pytest

from seamline.engines.inline import InlineEngine
from seamline.testing import TaskContract


class TestInlineEngine(TaskContract):
    @pytest.fixture
    def engine(self):
        return InlineEngine()


def test_the_worker_is_this_process_and_its_error_is_ours():
    engine = InlineEngine()
    assert engine.run(lambda world, shard: (os.getpid(), world.all_gather(shard)), ["a"]) == [(os.getpid(), ["a"])]
    with pytest.raises(ZeroDivisionError):
        engine.run(lambda world, shard: 1 / 0, [0])


def test_reports_are_heard():
    heard = []
    InlineEngine().run(lambda world, shard: world.report(shard), ["news"], listen=lambda *m: heard.append(m))
    assert heard == [(0, "news")]


def test_more_than_one_worker_is_refused():
    with pytest.raises(ValueError, match="runs 1 worker, not 2"):
        InlineEngine().run(lambda world, shard: 0, [0, 0])
