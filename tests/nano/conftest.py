"""What the tests of this folder share."""

import pytest

from tests.nano.processes import gone, processes_of_workers


@pytest.fixture
def no_process_left():
    before = processes_of_workers()
    yield
    assert gone(processes_of_workers() - before, within_s=2)
