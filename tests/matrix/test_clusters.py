"""The rows of a Spark cluster whose executors are processes of their own, and of Ray inside it.

Workers are those of Spark and Ray, whose rows have every kind; here are the kinds whose rows lie in the cluster.
"""

import pytest

from seamline.orca import init_orca_context
from tests.engines.spark_cluster import on_a_cluster
from tests.matrix.contract import MatrixContract

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")]


@pytest.fixture(scope="module")
def session(learned_here):
    """Two executors with two slots each."""
    with on_a_cluster() as (session, _):
        yield session


class TestSparkCluster(MatrixContract):
    kinds = ("arrays", "spark dataframe")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, session):
        with init_orca_context("standalone"):
            yield


class TestRayOnSpark(MatrixContract):
    kinds = ("spark dataframe", "ray dataset")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, session):
        with init_orca_context("ray-on-spark"):
            yield
