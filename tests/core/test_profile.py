"""Where the time goes: the account that a worker keeps, and what it says about who waited for whom."""

import time

import pytest

from seamline.core.clock import Clock, gathered, reduced, shared
from seamline.core.profile import EpochTimes, pace_of, stragglers, waited_for


def spend(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def slow(batches, seconds):
    for batch in batches:
        spend(seconds)
        yield batch


def train(clock, steps, *, data_s, compute_s, communication_s, other_s):
    for _ in clock.fetched(slow(range(steps), data_s)):
        spend(compute_s)
        with clock.communicating(sent=10):
            spend(communication_s)
        clock.step_done(rows=4)
        spend(other_s)


def test_each_second_is_counted_once_and_in_its_place():
    clock = Clock()
    clock.start()
    began = time.perf_counter()
    train(clock, 5, data_s=0.01, compute_s=0.02, communication_s=0.03, other_s=0.005)
    times = clock.close(rank=1, epoch=3, step=105)
    wall_s = time.perf_counter() - began
    assert times.wall_s == pytest.approx(wall_s, abs=0.01)
    assert (times.rank, times.epoch, times.steps, times.rows, times.bytes) == (1, 3, 5, 20, 50)
    for part, least in (("data", 0.05), ("compute", 0.1), ("communication", 0.15), ("other", 0.025)):
        assert least <= times.spent(part) < wall_s - (0.325 - least) + 1e-3, part


def test_waiting_for_peers_while_data_is_fetched_is_no_waiting_for_data():
    clock = Clock()

    def agreed():
        for batch in range(3):
            with clock.communicating(sent=0):
                spend(0.02)
            yield batch

    clock.start()
    for _ in clock.fetched(agreed()):
        clock.step_done(rows=1)
    times = clock.close(0, 1, 3)
    assert times.communication_s >= 0.06
    assert times.data_s < 0.02


def test_the_slowest_step_is_the_one_with_the_most_work_of_its_own():
    clock = Clock()
    clock.start()
    for step in clock.fetched(range(10)):
        spend(0.1 if step == 6 else 0.002)
        clock.communicated(5.0 if step == 2 else 0.0, 0)  # a long wait, which is another worker's doing
        clock.step_done(rows=1)
    times = clock.close(0, 1, step=1010)
    assert times.slowest_step == 1007
    assert 0.1 <= times.slowest_step_s < 1.0
    assert 0.0019 <= times.median_step_s < 0.02


def test_an_account_begins_where_the_last_one_ended():
    clock = Clock()
    clock.start()
    began = time.perf_counter()
    accounts = []
    for epoch in (1, 2, 3):
        train(clock, 2, data_s=0.0, compute_s=0.002, communication_s=0.001, other_s=0.0)
        accounts.append(clock.close(0, epoch, 2 * epoch))
    assert sum(each.wall_s for each in accounts) == pytest.approx(time.perf_counter() - began, abs=0.01)
    assert [each.steps for each in accounts] == [2, 2, 2]
    assert all(each.slowest_step in (2 * each.epoch - 1, 2 * each.epoch) for each in accounts)


def test_quantiles_are_right_to_a_few_percent_and_take_no_more_room_with_more_steps():
    clock = Clock()
    for size in range(1, 100_001):
        clock._spread.add(size * 1e-4)
    assert clock._spread.quantile(0.5) == pytest.approx(5.0, rel=0.05)
    assert clock._spread.quantile(0.95) == pytest.approx(9.5, rel=0.05)
    assert len(clock._spread._counts) < 300
    assert Clock().close(0, 1, 0).median_step_s == 0.0


def test_the_pace_is_told_no_more_often_than_asked_for():
    clock = Clock()
    clock.start()
    assert clock.pace(10.0) is None
    train(clock, 4, data_s=0.0, compute_s=0.01, communication_s=0.01, other_s=0.0)
    pace = clock.pace(0.04)
    assert pace.communication == pytest.approx(0.5, abs=0.2)
    assert sum((pace.data, pace.compute, pace.communication, pace.other)) == pytest.approx(1.0)
    assert 0 < pace.rows_per_s <= 16 / 0.08
    assert clock.pace(0.04) is None


@pytest.mark.parametrize(("workers", "expected"), [(2, 1000), (4, 1500)])
def test_what_a_ring_sends(workers, expected):
    assert reduced(1000, workers) == expected
    assert gathered(1000, workers) == 1000 * (workers - 1)
    assert sum(shared(1000, workers) for _ in range(workers)) == 1000 * (workers - 1)


def times_of(rank, *, data_s=1.0, compute_s=5.0, communication_s=1.0, other_s=0.0, epoch=1):
    return EpochTimes(rank, epoch, 10, 100, data_s, compute_s, communication_s, other_s, 0, 0.1, 0.1, 1, 0.1)


@pytest.mark.parametrize("part", ["data", "compute", "other"])
def test_a_straggler_is_named_with_what_it_does(part):
    slow = times_of(2, communication_s=0.5, **{f"{part}_s": 9.0})
    fast = [times_of(rank, communication_s=5.0) for rank in (0, 1, 3)]
    (found,) = stragglers([*fast, slow])
    assert (found.rank, found.because, found.waited_s) == (2, part, 4.5)
    assert "for worker 2" in str(found)


def test_two_slow_ones_are_both_named_and_one_fast_one_blames_nobody():
    assert waited_for({0: 5.0, 1: 0.0, 2: 0.0, 3: 5.0}) == {0: 0.0, 1: 5.0, 2: 5.0, 3: 0.0}
    assert waited_for({0: 5.0, 1: 0.0, 2: 0.0, 3: 0.0}) == dict.fromkeys(range(4), 0.0)


def test_nobody_is_blamed_for_little():
    assert stragglers([times_of(0, communication_s=1.2), times_of(1, communication_s=1.0)]) == []
    assert stragglers([times_of(0)]) == []
    assert stragglers([]) == []


def test_the_pace_of_all_workers():
    pace = pace_of([times_of(0, other_s=1.0), times_of(1, data_s=2.0)])
    assert pace["rows_per_s"] == pytest.approx(200 / 8)
    assert pace["data_share"] == pytest.approx(3 / 16)
    assert sum(value for name, value in pace.items() if name.endswith("_share")) == pytest.approx(1.0)
