"""What a policy pays for."""

import pickle

import pytest

from seamline.core.errors import WorkerLostError
from seamline.core.retry import Budget, RetryPolicy

KILLED, TAKEN = WorkerLostError(1, "killed"), WorkerLostError(1, "taken away", preempted=True)


def test_failures_and_preemptions_have_budgets_of_their_own():
    budget = Budget(RetryPolicy(failures=1, preemptions=2))
    assert [budget.spend(loss) is not None for loss in (TAKEN, KILLED, TAKEN, KILLED)] == [True, True, True, False]
    assert Budget(RetryPolicy(preemptions=0)).spend(TAKEN) is None


def test_each_wait_is_twice_as_long_up_to_a_limit():
    budget = Budget(RetryPolicy(failures=9, wait_s=0.5, wait_at_most_s=3))
    assert [budget.spend(KILLED) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_number_is_a_policy():
    assert RetryPolicy.of(None) == RetryPolicy()
    assert RetryPolicy.of(2) == RetryPolicy(failures=2, preemptions=2)
    with pytest.raises(ValueError, match="failures=-1"):
        RetryPolicy.of(-1)


def test_a_loss_travels():
    copy = pickle.loads(pickle.dumps(TAKEN))
    assert (copy.rank, copy.traceback, copy.preempted) == (1, "taken away", True)
