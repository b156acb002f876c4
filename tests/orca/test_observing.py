"""What a run says of itself: where its time went and who was waited for, in tables, pictures and on the screen."""

import contextlib
import functools
import io
import sys
import time

import pytest
import torch
from rich.console import Console
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seamline.core import registry
from seamline.core.errors import SeamlineError, UnavailableError
from seamline.core.events import Progress
from seamline.core.profile import Pace, Straggler
from seamline.frameworks.torch.world import join
from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import Callback
from seamline.orca.profile import Profile
from seamline.orca.progress import Bars, Lines, Silence
from seamline.testing.faults import Kill, SlowDown
from tests.orca.networks import ROWS, make_network, make_rows

STEPS = 11
SLEPT_S = 0.88


def make_estimator(model=None, **options):
    model = model or make_network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    return Estimator.from_torch(model=model, optimizer=optimizer, loss=nn.CrossEntropyLoss(), **options)


def fit(est=None, **options):
    return (est or make_estimator()).fit(make_rows(), **{"epochs": 2, "batch_size": 10, "verbose": 0, **options})


# The account


class Stopwatch(Callback):
    """Measures on its own what the account is about."""

    def on_fit_begin(self, run):
        self.began = time.perf_counter()

    def on_epoch_end(self, run):
        self.wall_s = time.perf_counter() - self.began


@pytest.mark.parametrize("options", [{}, {"workers": 2}, {"workers": 2, "deterministic": True}], ids=str)
def test_the_parts_add_up_to_the_time_that_has_passed(options):
    watch = Stopwatch()
    profile = fit(callbacks=[watch], validation_data=make_rows(), **options).profile_
    workers = options.get("workers", 1)
    assert [(each.rank, each.epoch) for each in profile.times] == [(rank, e) for e in (1, 2) for rank in range(workers)]
    assert sum(each.wall_s for each in profile.times if each.rank == 0) == pytest.approx(watch.wall_s, abs=0.02)
    for epoch in (1, 2):
        here = [each for each in profile.times if each.epoch == epoch]
        assert sum(each.rows for each in here) == ROWS
        assert {each.steps for each in here} == {STEPS}
    for each in profile.times:
        assert min(each.data_s, each.compute_s, each.other_s) > 0
        assert (each.communication_s > 0, each.bytes > 0) == (workers > 1, workers > 1)
        assert 0 < each.median_step_s <= 1.1 * each.p95_step_s
        assert (each.epoch - 1) * STEPS < each.slowest_step <= each.epoch * STEPS


@pytest.fixture(scope="module")
def slow_run():
    """Two workers of which the second is slow, and what was printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        faults = [SlowDown(rank=1, seconds=SLEPT_S / STEPS / 2)]
        est = fit(workers=2, faults=faults, validation_data=make_rows(), verbose=1)
    return est, out.getvalue().splitlines()


def test_the_others_wait_for_a_slow_worker_and_it_is_named(slow_run):
    est, lines = slow_run
    profile = est.profile_
    (straggler,) = profile.stragglers
    assert (straggler.rank, straggler.because) == (1, "compute")
    assert 0.8 * SLEPT_S < straggler.waited_s < 1.5 * SLEPT_S
    assert profile.spent(0, "communication") > 0.8 * SLEPT_S
    assert profile.spent(1, "communication") < 0.5 * SLEPT_S
    assert profile.spent(1, "compute") > SLEPT_S
    assert f"the others waited {straggler.waited_s:.1f} s" in str(profile)
    assert len(lines) == 2
    assert all("for worker 1 and its computing)" in line for line in lines)


class Pausing(Callback):
    """Keeps the first worker from its work."""

    steers = False

    def on_step_end(self, run):
        time.sleep(0.03)


def test_a_slow_callback_is_neither_data_nor_computing():
    (straggler,) = fit(workers=2, callbacks=[Pausing()]).profile_.stragglers
    assert (straggler.rank, straggler.because) == (0, "other")


class SlowRows(torch.utils.data.Dataset):
    def __init__(self):
        self.x, self.y = make_rows()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, row):
        time.sleep(0.002)
        return self.x[row], self.y[row]


def test_slow_data_is_waiting_for_data():
    profile = make_estimator().fit(SlowRows(), batch_size=10, workers=2, verbose=0).profile_
    for rank in (0, 1):
        assert profile.spent(rank, "data") > 0.5 * 0.002 * ROWS / 2
        assert profile.spent(rank, "data") > profile.spent(rank, "compute")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_bytes_are_those_of_the_gradients_that_are_not_held_back(accumulate):
    model = nn.Sequential(nn.Linear(6, 1000), nn.Tanh(), nn.Linear(1000, 3))
    parameters = sum(each.numel() for each in model.parameters())
    profile = fit(make_estimator(model, tuning=Tuning(accumulate=accumulate)), workers=2, epochs=1).profile_
    for each in profile.times:  # a ring of two sends each number once; the rest are words at the end of an epoch
        assert 0 <= each.bytes - 4 * parameters * STEPS < 0.01 * each.bytes


# The same bits


def make_normalising():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 3))


def train_by_hand(world, rows, size):
    """The loop of any program that uses torch alone."""
    with join(world, "cpu") as ours:
        model = make_normalising()
        parallel = DistributedDataParallel(model) if ours.size > 1 else model
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        rows, share = [torch.tensor(each) for each in rows], size // ours.size
        for _ in range(2):
            for start in range(0, len(rows[0]), size):
                part = slice(start + ours.rank * share, start + (ours.rank + 1) * share)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(parallel(rows[0][part]), rows[1][part])
                loss.backward()
                optimizer.step()
        ours.all_gather("done")  # the first worker holds the store, and must not leave while others may need it
        return model.state_dict()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_timing_changes_no_bit(workers):
    rows = make_rows(96)
    est = make_estimator(make_normalising())
    est.fit(rows, epochs=2, batch_size=12, shuffle=False, workers=workers, verbose=0, timeout_s=20)
    with contextlib.closing(registry.engine("inline" if workers == 1 else "local")) as engine:
        by_hand = engine.run(functools.partial(train_by_hand, size=12), [rows] * workers)[0]
    assert est.state_["model"].keys() == by_hand.keys()
    for name, value in est.state_["model"].items():
        assert torch.equal(value, by_hand[name]), name


# What is left of it


def test_fitting_again_goes_on_and_so_does_the_account():
    est = fit()
    fit(est, epochs=1)
    assert est.profile_.epochs == [1, 2, 3]
    assert len(est.profile_.to_pandas()) == 3


def test_the_account_goes_on_where_a_worker_was_replaced(tmp_path):
    est = make_estimator(model_dir=tmp_path)
    fit(est, workers=2, epochs=3, retry=1, faults=[Kill(rank=1, step=STEPS + 5)])
    done = {(each.rank, each.epoch): each.steps for each in est.profile_.times}
    lost = {(1, 2): STEPS - 5}  # what a lost worker did before is lost with it
    assert done == {(rank, epoch): STEPS for epoch in (1, 2, 3) for rank in (0, 1)} | lost


def test_the_table_has_a_line_for_each_worker(slow_run):
    profile = slow_run[0].profile_
    frame = profile.to_pandas()
    assert list(frame["rank"]) == [0, 1, 0, 1]
    assert frame["data_s"].sum() == pytest.approx(profile.spent(0, "data") + profile.spent(1, "data"))
    header, first, second, *_ = str(profile).splitlines()
    for word in ("data %", "compute %", "communication %", "rows/s", "slowest", "sent a step"):
        assert word in header
    assert (first.split()[0], second.split()[0]) == ("0", "1")
    assert str(Profile()).startswith(" worker")


def test_the_picture_shows_loss_throughput_time_and_stragglers(tmp_path, slow_run):
    est, _ = slow_run
    figure = est.plot(tmp_path / "run.png")
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")
    loss, throughput, split, waits = figure.axes
    assert [list(line.get_ydata()) for line in loss.lines] == [
        [epoch[name] for epoch in est.history_] for name in ("loss", "val_loss")
    ]
    assert list(throughput.lines[0].get_ydata()) == [est.profile_.rows_per_s(epoch) for epoch in (1, 2)]
    assert sum(bar.get_height() for bar in split.patches) == pytest.approx(sum(t.wall_s for t in est.profile_.times))
    assert [bar.get_height() for bar in waits.patches] == [0.0, est.profile_.stragglers[0].waited_s]


def test_no_picture_without_a_run_or_matplotlib(monkeypatch):
    with pytest.raises(SeamlineError, match="call fit first"):
        make_estimator().plot()
    est = fit(epochs=1)
    assert len(est.plot().axes) == 4
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnavailableError, match=r'matplotlib is not installed; pip install "seamline\[inference\]"'):
        est.plot()


# The screen


class Listening(Silence):
    """Keeps what workers report."""

    def __init__(self):
        self.heard = []

    def __call__(self, rank, message):
        self.heard.append((rank, message))


def test_all_workers_say_how_they_get_on_and_not_too_often(monkeypatch):
    listening = Listening()
    monkeypatch.setattr("seamline.orca.estimator.display", lambda verbose: listening)
    began = time.monotonic()
    fit(workers=2, epochs=1, faults=[SlowDown(rank=1, seconds=0.1)])
    passed_s = time.monotonic() - began
    for rank in (0, 1):
        paces = [message for who, message in listening.heard if who == rank and isinstance(message, Pace)]
        assert 1 <= len(paces) <= passed_s / 0.5
    waits = {who: message.communication for who, message in listening.heard if isinstance(message, Pace)}
    assert waits[0] > 0.5 > waits[1]


def shown(*messages):
    screen = io.StringIO()
    with Bars(Console(file=screen, force_terminal=True, width=150)) as bars:
        for rank, message in messages:
            bars(rank, message)
        bars._bars.refresh()
        return screen.getvalue()


def test_bars_have_a_line_for_each_worker_that_goes_when_the_run_ends():
    begun = Progress(epoch=0, epochs=3, step=1, steps=10, rows_per_s=9.0, loss=0.5)
    slow, fast = Pace(5, 100.0, 0.1, 0.9, 0.0, 0.0), Pace(5, 110.0, 0.1, 0.3, 0.6, 0.0)
    during = shown((0, begun), (0, fast), (1, slow))
    assert "worker 0" in during
    line = during.split("worker 1")[-1].splitlines()[0]
    assert "100 rows/s" in line
    assert "the others wait for it 60% of the time" in line
    ended = Console(file=io.StringIO(), force_terminal=True, width=150)
    with Bars(ended) as bars:
        bars(1, slow)
    assert "worker" not in ended.file.getvalue().splitlines()[-1]


def test_of_many_workers_those_are_shown_that_others_wait_for():
    paces = [(rank, Pace(5, 100.0, 0.1, 0.3, 0.0 if rank in (11, 57) else 0.6, 0.0)) for rank in range(100)]
    during = shown(*paces)
    lines = [line for line in during.splitlines() if "worker" in line]
    assert len(lines) == 8
    assert [line.split("worker ")[1].split()[0] for line in lines if "wait for it" in line] == ["11", "57"]
    assert "and 93 more workers" in lines[-1]


def test_a_line_says_whom_the_others_waited_for(capsys):
    waits = (Straggler(3, 7.25, 0.31, "data"), Straggler(1, 2.0, 0.1, "compute"))
    over = {"epoch": 0, "epochs": 1, "step": 5, "steps": 5, "rows_per_s": 9.0, "loss": 0.5, "epoch_over": True}
    Lines()(0, Progress(**over, stragglers=waits))
    expected = "epoch 1/1: loss 0.5000 (9 rows/s; the others waited 7.2 s (31%) for worker 3 and its data)\n"
    assert capsys.readouterr().out == expected
