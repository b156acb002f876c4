"""Who reads which row when."""

import numpy as np
import pytest

from seamline.data.balance import part
from seamline.data.order import epoch_order, step_count


def test_an_order_visits_every_row_once_and_differs_between_epochs_and_seeds():
    orders = [epoch_order(1000, shuffle=True, seed=seed, epoch=epoch) for seed in (0, 1) for epoch in (0, 1)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(1000))
    assert len({tuple(order) for order in orders}) == 4
    np.testing.assert_array_equal(epoch_order(1000, shuffle=True, seed=0, epoch=1), orders[1])
    np.testing.assert_array_equal(epoch_order(5, shuffle=False, seed=0, epoch=1), range(5))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 7, 64, 65])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("full", [0, 64])
def test_parts_are_the_whole_batch_in_order_and_differ_by_one(rows, workers, full):
    parts = [part(rows, worker, workers, full=full) for worker in range(workers)]
    assert [row for each in parts for row in range(rows)[each.low : each.high]] == list(range(rows))
    sizes = [each.rows for each in parts if each.rows]
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert all(len(range(rows)[each.read]) == max(1, each.rows) for each in parts if rows)


def test_a_short_batch_leaves_no_worker_with_a_single_row():
    assert [part(2, worker, 3, full=32).rows for worker in range(3)] == [2, 0, 0]
    assert [part(5, worker, 3, full=32).rows for worker in range(3)] == [3, 2, 0]
    assert [part(1, worker, 3, full=32).rows for worker in range(3)] == [1, 0, 0]
    assert [part(4, worker, 4, full=4).rows for worker in range(4)] == [1, 1, 1, 1]


def test_steps():
    assert step_count(100, 10) == 10
    assert step_count(101, 10) == 11
    assert step_count(101, 10, drop_last=True) == 10
