"""The row of Spark in one process, and what local processes make of its DataFrames."""

import pytest

from seamline.orca import init_orca_context
from tests.engines.spark_cluster import in_one_process
from tests.matrix.contract import MatrixContract, WorkersContract
from tests.matrix.kinds import TRAVELLING

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(learned_here):
    with in_one_process() as (session, _):
        yield session


class TestSparkInOneProcess(MatrixContract, WorkersContract):
    kinds = (*TRAVELLING, "spark dataframe")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, session):
        with init_orca_context("spark"):
            yield


class TestLocalProcessesBesideSpark(MatrixContract):
    kinds = ("spark dataframe",)

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, session):
        """No context: local processes."""
