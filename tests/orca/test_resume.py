"""Checkpoints are found again and continue where they were, also in the middle of an epoch."""

import time

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from seamline.core.errors import CheckpointError
from seamline.orca import CheckpointPolicy, Estimator
from seamline.orca.callbacks import Callback
from tests.orca.networks import ROWS, assert_same_weights, make_network, make_rows

DATA = make_rows()
STEPS = -(-ROWS // 10)


def make(model_dir=None, *, model=None, **options):
    model = model or make_network(dropout=0.2)
    options = {"optimizer": torch.optim.Adam(model.parameters(), 0.01), "loss": nn.CrossEntropyLoss(), **options}
    return Estimator.from_torch(model=model, model_dir=model_dir, **options)


def fit(est, **options):
    return est.fit(DATA, **{"epochs": 3, "batch_size": 10, "verbose": 0, **options})


@pytest.fixture(scope="module")
def whole():
    return fit(make())


@pytest.mark.parametrize("stop", [1, STEPS - 1, STEPS, STEPS + 1, 2 * STEPS + 5])
def test_a_run_in_two_pieces_is_the_run_in_one(tmp_path, whole, stop):
    fit(make(tmp_path), max_steps=stop)
    resumed = fit(make(tmp_path), resume="auto")
    assert_same_weights(resumed, whole)
    resumed.ledger_.check(ROWS)
    assert [epoch["loss"] for epoch in resumed.history_] == pytest.approx(
        [epoch["loss"] for epoch in whole.history_], abs=1e-9
    )


def test_resuming_a_finished_run_changes_nothing(tmp_path, whole):
    fit(make(tmp_path))
    again = fit(make(tmp_path), resume="auto")
    assert_same_weights(again, whole)
    assert len(again.history_) == 3


def test_resuming_without_a_checkpoint_starts_anew(tmp_path, whole):
    assert_same_weights(fit(make(tmp_path), resume="auto"), whole)


def test_a_checkpoint_can_be_named(tmp_path, whole):
    fit(make(tmp_path), max_steps=12, checkpoint=CheckpointPolicy(every_steps=4, keep=None))
    named = sorted(tmp_path.glob("checkpoints/run-0001/fit-1/step-*"))[0]
    assert named.name == "step-0000000004"
    assert_same_weights(fit(make(tmp_path), resume=named), whole)


def test_a_new_run_never_mixes_with_an_old_one(tmp_path, whole):
    fit(make(tmp_path), epochs=9)
    fit(make(tmp_path), max_steps=5)
    assert_same_weights(fit(make(tmp_path), resume="auto"), whole)


def test_retention(tmp_path):
    fit(make(tmp_path), checkpoint=CheckpointPolicy(every_steps=3, keep=2))
    assert len(list(tmp_path.glob("checkpoints/run-0001/fit-1/step-*"))) == 2


SCHEDULERS = {
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "milestones": lambda o: lr_scheduler.MultiStepLR(o, [5, 9, 20]),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.05, total_steps=3 * STEPS + 1),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.001, 0.01, step_size_up=4, cycle_momentum=False),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)], milestones=[6]
    ),
}


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_schedulers_go_on_where_they_were(tmp_path, scheduler):
    options = {"scheduler": scheduler, "scheduler_every": "step"}
    whole = fit(make(**options))
    fit(make(tmp_path, **options), max_steps=STEPS + 3)
    assert_same_weights(fit(make(tmp_path, **options), resume="auto"), whole)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adadelta", "Rprop"])
def test_optimizers_go_on_where_they_were(tmp_path, name):
    def optimizer(model):
        return getattr(torch.optim, name)(model.parameters(), lr=0.01)

    whole = fit(make(optimizer=optimizer))
    fit(make(tmp_path, optimizer=optimizer), max_steps=STEPS + 3)
    assert_same_weights(fit(make(tmp_path, optimizer=optimizer), resume="auto"), whole)


class Counter(Callback):
    """Counts steps, and remembers across a resume."""

    def __init__(self):
        self.count = 0

    def on_step_end(self, run):
        self.count += 1

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def test_callbacks_remember(tmp_path):
    fit(make(tmp_path), max_steps=7, callbacks=[Counter()])
    counter = Counter()
    fit(make(tmp_path), resume="auto", callbacks=[counter])
    assert counter.count == 3 * STEPS


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    fit(make(tmp_path), max_steps=3)
    other = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Dropout(0.1), nn.Linear(20, 3))
    with pytest.raises(CheckpointError, match=r"another model: 0.weight is \(12, 6\) there and \(20, 6\) here"):
        fit(make(tmp_path, model=other), resume="auto")


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path):
    fit(make(tmp_path), max_steps=3)
    model = make_network()
    groups = [{"params": model[0].parameters()}, {"params": model[3].parameters()}]
    with pytest.raises(CheckpointError, match="the saved optimizer does not fit SGD of this model"):
        fit(make(tmp_path, model=model, optimizer=torch.optim.SGD(groups, lr=0.1)), resume="auto")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 20}, "was made with batch_size=10, this run has batch_size=20"),
        ({"seed": 5}, "was made with seed=0, this run has seed=5"),
        ({"shuffle": False}, "was made with shuffle=True, this run has shuffle=False"),
    ],
)
def test_a_place_in_other_data_is_refused(tmp_path, options, message):
    fit(make(tmp_path), max_steps=3)
    with pytest.raises(CheckpointError, match=message):
        fit(make(tmp_path), resume="auto", **options)


def test_places_that_do_not_exist(tmp_path):
    with pytest.raises(ValueError, match="resume= needs a place for checkpoints"):
        fit(make(), resume="auto")
    with pytest.raises(ValueError, match="checkpoint= needs a place for checkpoints"):
        fit(make(), checkpoint=5)
    with pytest.raises(CheckpointError, match="holds nothing saved by Seamline"):
        fit(make(tmp_path), resume=tmp_path / "nowhere")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_while_saving_leaves_the_old_checkpoint(tmp_path, workers):
    class FillDisk(Callback):
        """From the fourth step on, the system refuses to write files beyond 100 bytes."""

        everywhere = True

        def on_step_end(self, run):
            import resource

            if run.step == 4:
                while not list(tmp_path.glob("checkpoints/run-0001/fit-1/step-*")):
                    time.sleep(0.01)  # the first checkpoint is written beside the run
                self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, self.before[1]))

    filler = FillDisk()
    try:
        with pytest.raises(CheckpointError, match="could not be written"):
            fit(make(tmp_path), checkpoint=3, workers=workers, callbacks=[filler])
    finally:
        if workers == 1:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, filler.before)
    (survivor,) = tmp_path.glob("checkpoints/run-0001/fit-1/*")
    assert survivor.name == "step-0000000003"
    assert fit(make(tmp_path), resume=survivor).ledger_.ranges(0) == [(0, ROWS)]


def test_a_program_with_two_fits_goes_on_in_the_one_that_was_killed(tmp_path):
    whole = fit(fit(make(tmp_path / "whole"), epochs=2), epochs=2)
    first = fit(make(tmp_path), epochs=2, resume="auto")
    fit(first, epochs=2, max_steps=STEPS + 3, resume="auto")
    again = make(tmp_path)
    assert len(fit(again, epochs=2, resume="auto").history_) == 2
    fit(again, epochs=2, resume="auto")
    assert [epoch["epoch"] for epoch in again.history_] == [1, 2, 3, 4]
    assert_same_weights(again, whole)


def test_resuming_twice_on_one_object_does_not_count_epochs_twice(tmp_path, whole):
    fit(make(tmp_path), max_steps=STEPS + 3)
    est = make(tmp_path)
    fit(est, resume="auto")
    assert [epoch["epoch"] for epoch in est.history_] == [1, 2, 3]
    assert_same_weights(est, whole)


def test_going_back_to_an_older_checkpoint_harms_no_newer_one(tmp_path, whole):
    policy = CheckpointPolicy(every_steps=4, keep=2)
    fit(make(tmp_path), checkpoint=policy)
    older, newer = sorted(tmp_path.glob("checkpoints/run-0001/fit-1/step-*"))
    copy = tmp_path / "backup" / older.name
    copy.parent.mkdir()
    import shutil

    shutil.copytree(older, copy)
    for start in (older, copy):
        assert_same_weights(fit(make(tmp_path), resume=start, checkpoint=policy), whole)
    assert older.exists()
    assert newer.exists()
    assert [path.name for path in copy.parent.iterdir()] == [older.name]
    assert sorted(run.name for run in tmp_path.glob("checkpoints/run-*")) == ["run-0001", "run-0002", "run-0003"]


def test_a_failed_attempt_is_not_mixed_with_the_next(tmp_path, whole):
    class Fail(Callback):
        def on_step_end(self, run):
            if run.step == 9:
                raise RuntimeError("once")

    est = make(tmp_path)
    with pytest.raises(RuntimeError, match="once"):
        fit(est, checkpoint=4, callbacks=[Fail()])
    fresh = make(tmp_path)
    assert_same_weights(fit(fresh), whole)
    assert sorted(run.name for run in tmp_path.glob("checkpoints/run-*")) == ["run-0001", "run-0002"]


def test_callbacks_find_their_own_state_in_any_order(tmp_path):
    from seamline.orca.callbacks import EarlyStopping

    fit(make(tmp_path), max_steps=7, callbacks=[Counter()])
    counter = Counter()
    fit(make(tmp_path), resume="auto", callbacks=[EarlyStopping("loss"), counter])
    assert counter.count == 3 * STEPS


def test_a_saved_model_is_no_checkpoint(tmp_path):
    fit(make()).save(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="is a saved model, not a checkpoint; use load"):
        fit(make(tmp_path), resume=tmp_path / "saved")


@pytest.mark.parametrize("workers", [(2, 1), (1, 2)])
def test_a_run_resumes_on_another_number_of_workers(tmp_path, workers):
    def still():
        return make(tmp_path, model=make_network())

    before, after = workers
    fit(still(), max_steps=STEPS + 3, workers=before)
    resumed = fit(still(), resume="auto", workers=after)
    resumed.ledger_.check(ROWS)
    expected = fit(make(model=make_network()))
    for ours, theirs in zip(resumed.state_["model"].values(), expected.state_["model"].values(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)
