"""Who reads which row when."""

import numpy as np
import pytest

from seamline.data.balance import share
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
def test_shares_are_the_whole_batch_in_order_and_differ_by_one(rows, workers):
    shares = [share(rows, worker, workers) for worker in range(workers)]
    assert [row for low, high in shares for row in range(low, high)] == list(range(rows))
    sizes = [high - low for low, high in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_steps():
    assert step_count(100, 10) == 10
    assert step_count(101, 10) == 11
    assert step_count(101, 10, drop_last=True) == 10
