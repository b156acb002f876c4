"""The row of local processes; ``FrameworkContract`` and ``test_deterministic`` have their numbers of workers."""

import pytest

from seamline.orca import init_orca_context
from tests.matrix.contract import MatrixContract
from tests.matrix.kinds import ANYWHERE


class TestLocalProcesses(MatrixContract):
    kinds = ANYWHERE

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, learned_here):
        with init_orca_context("local", cores=2):
            yield
