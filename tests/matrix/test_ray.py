"""The row of Ray, and what local processes make of its data sets."""

import time

import pytest

from seamline.engines.ray import RayEngine
from seamline.orca import Estimator, init_orca_context
from tests.data.tables import values
from tests.matrix.contract import MatrixContract, Network, WorkersContract
from tests.matrix.kinds import FEATURES, PIECES, ROWS, TRAVELLING, blocks_together

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")]


@pytest.fixture(scope="module")
def cluster(learned_here):
    """More logical CPUs than cores, so that four workers find room."""
    engine = RayEngine(cores=4)
    engine.map(abs, [0])
    yield
    engine.close()


class TestRay(MatrixContract, WorkersContract):
    kinds = (*TRAVELLING, "ray dataset")

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, cluster):
        with init_orca_context("ray"):
            yield


class TestLocalProcessesBesideRay(MatrixContract):
    kinds = ("ray dataset",)

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, cluster):
        """No context: local processes."""


def after_the_last(folder):
    """Lets a block that begins with row 0 wait for the one that ends with the last row."""

    def pass_on(table):
        numbers = table["id"].to_pylist()
        if numbers[-1:] == [ROWS - 1]:
            (folder / "last").touch()
        deadline = time.monotonic() + 30
        while numbers[:1] == [0] and not (folder / "last").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return table

    return pass_on


@pytest.mark.usefixtures("cluster")
def test_rows_keep_their_order_although_the_first_block_is_ready_last(tmp_path_factory):
    import ray.data

    def in_a_bad_order():
        folder = tmp_path_factory.mktemp("blocks")
        blocks = ray.data.from_arrow(PIECES)
        waiting = blocks.map_batches(after_the_last(folder), batch_size=None, batch_format="pyarrow")
        assert "id" in waiting.columns()  # Ray tries some blocks for that, and remembers
        (folder / "last").unlink(missing_ok=True)
        return waiting

    assert values(in_a_bad_order(), ["id"]).tolist() == list(range(ROWS))
    answered = Estimator.from_torch(model=Network(0.0)).predict(in_a_bad_order(), feature_cols=[FEATURES])
    assert blocks_together(answered)["id"].tolist() == list(range(ROWS))
