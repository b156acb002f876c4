"""What becomes of a task's errors on their way to whoever launched it."""

import pytest

from seamline.core.errors import DataError, WorkerLostError
from seamline.orca.launching import launch


def leave_early(world, shard):
    if world.rank == 0:
        world.all_gather("never complete")


def find_bad_data(world, shard):
    raise DataError("no such rows")


def test_workers_that_have_lost_each_other_are_a_loss_after_which_a_run_may_start_again():
    with pytest.raises(WorkerLostError, match="worker 0 has lost the connection to a peer") as caught:
        launch(leave_early, [0, 0])
    assert caught.value.rank == 0


def test_an_error_of_ours_comes_out_as_itself():
    with pytest.raises(DataError, match="no such rows"):
        launch(find_bad_data, [0, 0])
