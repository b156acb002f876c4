"""Checkpoints and saved models behind URLs: a run goes on from there to the weights of an undisturbed one."""

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from torch import nn

from seamline.core.errors import CheckpointError, SeamlineError, WorkerLostError
from seamline.orca import CheckpointPolicy, Estimator, RetryPolicy
from seamline.orca.callbacks import Callback, ModelCheckpoint
from seamline.testing.faults import Kill
from tests.core.bucket import Bucket, Known
from tests.orca.networks import ROWS, assert_same_weights, make_network, make_rows

STEPS = -(-ROWS // 10)
RUN = "mine/checkpoints/run-0001/fit-1"


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def bucket(tmp_path):
    return Bucket(tmp_path / "objects")


@pytest.fixture(params=["memory://runs", "file://", "bucket://"])
def url(request, tmp_path, bucket):
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]
    return {"file://": f"file://{tmp_path}/runs", "bucket://": f"{bucket.url}/runs"}.get(request.param, request.param)


def make(model_dir=None):
    model = make_network(dropout=0.2)
    return Estimator.from_torch(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 0.01),
        loss=nn.CrossEntropyLoss(),
        model_dir=model_dir,
    )


def fit(est, *faults, **options):
    settings = {"epochs": 2, "batch_size": 10, "verbose": 0, "retry": RetryPolicy(wait_s=0), **options}
    return est.fit(make_rows(), faults=(Known(), *faults), **settings)


def assert_same_model(first, second):
    ours, theirs = (est.get_model().state_dict() for est in (first, second))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


@pytest.fixture(scope="module")
def whole():
    return fit(make())


@pytest.fixture(scope="module")
def whole_of_two():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        return fit(make(), workers=2)


def test_a_run_in_two_pieces_is_the_run_in_one(url, whole):
    fit(make(url), max_steps=STEPS + 3, checkpoint=CheckpointPolicy(every_steps=4, keep=2))
    resumed = fit(make(url), resume="auto")
    assert_same_weights(resumed, whole)
    resumed.ledger_.check(ROWS)


def test_a_model_is_saved_replaced_and_loaded(url, whole):
    other = fit(make(), epochs=1)
    other.save(f"{url}/model")
    whole.save(f"{url}/model")
    loaded = make().load(f"{url}/model")
    assert_same_model(loaded, whole)
    assert loaded.history_ == whole.history_
    with pytest.raises(CheckpointError, match="exists and was not saved by Seamline"):
        whole.save(url)
    with pytest.raises(CheckpointError, match="is a saved model, not a checkpoint"):
        fit(make(url), resume=f"{url}/model")


class Told(Callback):
    def __init__(self):
        self.places = []

    def on_checkpoint(self, run, path):
        self.places.append(str(path))


def test_callbacks_are_told_urls_and_can_save_to_them(bucket):
    told, best = Told(), ModelCheckpoint(f"{bucket.url}/best-{{epoch}}", monitor="loss", best_only=False)
    est = fit(make(f"{bucket.url}/mine"), callbacks=[told, best])
    assert told.places == [f"{bucket.url}/{RUN}/step-{STEPS * epoch:010d}" for epoch in (1, 2)]
    assert best.saved == f"{bucket.url}/best-2"
    assert_same_model(make().load(best.saved), est)
    assert_same_model(make().load(told.places[-1]), est)


def test_only_the_newest_are_kept(bucket):
    fit(make(f"{bucket.url}/mine"), checkpoint=CheckpointPolicy(every_steps=3, keep=2))
    assert {key.split("/")[4] for key in bucket.objects()} == {"step-0000000021", "step-0000000022"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_worker_killed_while_it_saves_leaves_the_checkpoint_before(bucket, whole_of_two, rank):
    survivor = fit(make(f"{bucket.url}/mine"), Kill(rank=rank, phase="checkpoint", step=8), workers=2, checkpoint=4)
    assert_same_weights(survivor, whole_of_two)
    survivor.ledger_.check(ROWS)
    assert not any(".begun" in key for key in bucket.objects())


@pytest.mark.parametrize("key", ["step-0000000008/training.safetensors", "step-0000000008/seamline.json"])
def test_a_new_driver_goes_on_after_a_kill_in_the_middle_of_an_upload(bucket, whole_of_two, key):
    bucket.when(key, "kill")
    with pytest.raises(WorkerLostError, match="SIGKILL"):
        fit(make(f"{bucket.url}/mine"), workers=2, checkpoint=4, retry=0)
    assert f"{RUN}/step-0000000008/model.safetensors" in bucket.objects()
    assert f"{RUN}/step-0000000008/seamline.json" not in bucket.objects()
    told = Told()
    survivor = fit(make(f"{bucket.url}/mine"), workers=2, checkpoint=4, resume="auto", callbacks=[told])
    assert_same_weights(survivor, whole_of_two)
    assert told.places[0].endswith("step-0000000008"), "it did not go on from the checkpoint of step 4"


def test_memory_of_one_process_is_refused_where_there_are_more():
    with pytest.raises(SeamlineError, match="memory://runs is memory of this process, which no other process sees"):
        fit(make("memory://runs"), workers=2)
