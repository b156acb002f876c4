"""What tasks leave for other tasks: it passes the driver by, and goes with the last who holds it."""

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from seamline.engines.local import LocalEngine
from seamline.engines.local.shelf import Shelf


def open_memory():
    links = list(Path("/proc/self/fd").iterdir())
    return [link for link in links if link.exists() and "memfd:seamline" in str(link.readlink())]


@pytest.mark.parametrize("size", [100_000, 3_000_000], ids=["copied", "mapped"])
def test_rooms_do_not_overlap_and_what_is_taken_is_ones_own(size):
    shelf = Shelf()
    big, small = np.arange(size), {"text": "ä", "number": 3}
    left = [shelf.hold(each) for number in (0, 7) for each in shelf.room(number).leave([big + number, small])]
    there = pickle.loads(pickle.dumps(left))
    assert [value[0] for value in (there[0].take(), there[2].take())] == [0, 7]
    assert there[1].take() == there[3].take() == small
    mine = left[0].take()
    mine += 1
    np.testing.assert_array_equal(left[0].take(), big)
    shelf.room(0).leave(["again"])
    np.testing.assert_array_equal(left[2].take(), big + 7)


def test_memory_goes_with_the_last_who_holds_it():
    before = len(open_memory())
    with_shelf = Shelf()
    left = with_shelf.hold(with_shelf.room(0).leave([np.ones(100_000)])[0])
    del with_shelf
    gc.collect()
    assert len(open_memory()) == before + 1
    taken = left.take()
    del left
    gc.collect()
    assert len(open_memory()) == before
    assert taken.sum() == 100_000, "what was taken stays"


def test_what_is_taken_keeps_no_descriptor():
    shelf = Shelf()
    left = shelf.room(0).leave([np.full(10_000, number) for number in range(50)])
    before = len(open_memory())
    taken = [each.take() for each in left]
    assert len(open_memory()) == before
    assert [array[0] for array in taken] == list(range(50))


def test_what_is_kept_never_comes_to_the_driver():
    engine = LocalEngine()
    try:

        class HereOnly:
            """Cannot be brought to life in the driver."""

            def __init__(self, driver):
                self.driver = driver

            def __setstate__(self, state):
                assert os.getpid() != state["driver"]
                self.__dict__.update(state)

        driver = os.getpid()
        kept = engine.collection([1, 2]).map(lambda _, shard: (HereOnly(driver), shard)).keep()
        assert kept.map(lambda _, pair: pair[1] + 1).collect() == [2, 3]
        sums = kept.exchange(lambda _, pair: [pair, pair], 2, lambda _, pairs: sum(number for _, number in pairs))
        assert sums.collect() == [3, 3]
    finally:
        engine.close()
