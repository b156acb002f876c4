"""The account of trained rows."""

import random

import pytest

from seamline.core.errors import LedgerError
from seamline.core.ledger import Ledger


def test_ranges_in_any_order_join_up():
    ranges = [(0, first, first + 7) for first in range(0, 700, 7)]
    random.Random(0).shuffle(ranges)
    ledger = Ledger()
    ledger.add(ranges)
    assert ledger.ranges(0) == [(0, 700)]
    ledger.check(700)


@pytest.mark.parametrize("again", [(0, 0, 5), (0, 3, 12), (0, 9, 10), (0, 4, 6), (0, 0, 10)])
def test_a_row_entered_twice_is_an_error(again):
    ledger = Ledger()
    ledger.add([(0, 0, 10)])
    with pytest.raises(LedgerError, match="trained twice"):
        ledger.add([again])


def test_a_missing_row_is_an_error():
    ledger = Ledger()
    ledger.add([(0, 0, 5), (0, 6, 10)])
    with pytest.raises(LedgerError, match=r"\[\(0, 5\), \(6, 10\)\] instead of all 10 rows"):
        ledger.check(10)


def test_a_worker_without_rows_enters_nothing_and_epochs_are_apart():
    ledger = Ledger()
    ledger.add([(0, 4, 4), (0, 0, 4), (1, 0, 4)])
    assert ledger.epochs == [0, 1]
    assert Ledger.from_dict(ledger.to_dict()).ranges(1) == [(0, 4)]
