"""An Estimator with a frozen part learns the same, reads less, and says what it does."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from seamline.core.shards import Reading, numbered
from seamline.data.arrays import ArrayShards
from seamline.data.creator import CreatorShards
from seamline.data.torch import LoaderShards
from seamline.frameworks.torch.frozen import part
from seamline.frameworks.torch.frozen.folder import PREFIX
from seamline.orca import Estimator, Tuning
from seamline.orca.callbacks import Callback
from tests.frameworks.frozen.networks import BATCH, Images, SmallResNet, in_a_row
from tests.frameworks.frozen.training import make


@pytest.fixture(autouse=True)
def _own_place(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield
    assert list(tmp_path.glob(f"{PREFIX}*")) == []


def fit(kind=SmallResNet, data=None, *, tuning=None, workers=1, epochs=3, callbacks=(), verbose=0, **options):
    model = make(kind)
    est = Estimator.from_torch(
        model=model,
        optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9),
        loss=nn.CrossEntropyLoss(),
        tuning=tuning or Tuning(),
        **options,
    )
    data = Images(rows=22) if data is None else data
    size = None if isinstance(data, DataLoader) else BATCH
    return est.fit(
        data,
        epochs=epochs,
        batch_size=size,
        workers=workers,
        callbacks=callbacks,
        verbose=verbose,
        validation_data=None,
    )


def weights(est):
    return {name: value.numpy() for name, value in est.state_["model"].items()}


def assert_same(one, other, atol=0.0):
    for name, value in weights(one).items():
        np.testing.assert_allclose(value, weights(other)[name], rtol=0, atol=atol, err_msg=name)


OFF, KEPT = Tuning(frozen="off"), Tuning(cache_frozen=True)


@pytest.mark.parametrize("kind", [SmallResNet, in_a_row])
def test_kept_features_give_the_weights_of_the_plain_run_to_the_bit(kind):
    assert_same(fit(kind, tuning=KEPT), fit(kind, tuning=OFF))


def test_later_epochs_read_the_spot_check_and_the_short_batch_alone():
    data = Images(rows=22)
    fit(data=data, tuning=KEPT, epochs=1)
    once = data.reads
    data.reads = 0
    fit(data=data, tuning=KEPT, epochs=6)
    tries, spot, short, missing = 3 * BATCH, BATCH, 22 % BATCH, 22 % BATCH
    assert data.reads <= once + tries + 5 * (spot + short) + missing
    plain = Images(rows=22)
    fit(data=plain, tuning=OFF, epochs=6)
    assert plain.reads == 6 * 22


@pytest.mark.parametrize("loader", [False, True])
def test_two_workers_learn_what_one_would(loader):
    data = DataLoader(Images(rows=22), batch_size=BATCH, shuffle=True) if loader else None
    alone = fit(in_two := SmallResNetWithoutNorm, data, tuning=OFF)
    assert_same(fit(in_two, data, tuning=KEPT, workers=2), alone, atol=1e-5)


class SmallResNetWithoutNorm(SmallResNet):
    """Batch statistics are of each worker's own rows, so they would differ."""

    def __init__(self):
        super().__init__()
        self.layers[1].bn = nn.Identity()


def test_arrays_and_pieces_of_a_batch_are_kept_too():
    images = Images(rows=22)
    data = images.x.numpy(), images.y.numpy()
    kept = fit(data=data, tuning=Tuning(cache_frozen=True, accumulate=2))
    assert_same(kept, fit(data=data, tuning=Tuning(frozen="off", accumulate=2)))


def test_a_random_input_pipeline_is_not_kept_and_the_line_says_why(capsys):
    data = Images(rows=22, noise=0.1)
    kept = fit(data=data, tuning=KEPT, verbose=1)
    assert "is not cached: reading it draws random numbers" in capsys.readouterr().out
    assert_same(kept, fit(data=data, tuning=OFF))


def test_what_is_as_quick_to_compute_is_not_kept_unless_asked(capsys, monkeypatch):
    monkeypatch.setattr(part, "READ_S", 10.0)
    fit(verbose=1)
    assert "is not cached: computing it again is as quick as reading its features" in capsys.readouterr().out
    fit(verbose=1, tuning=KEPT)
    assert "features of 22 rows are kept" in capsys.readouterr().out


def test_a_run_of_one_epoch_keeps_nothing_and_says_nothing_of_it(capsys):
    fit(epochs=1, verbose=1, tuning=KEPT)
    assert "cached" not in capsys.readouterr().out


def test_a_callback_that_thaws_is_followed(capsys):
    class Thaw(Callback):
        everywhere = True

        def on_epoch_begin(self, run):
            if run.epoch == 2:
                run.model.layers.requires_grad_(True)

    def all_in_optimizer():
        return lambda model: torch.optim.SGD(model.parameters(), lr=0.1)

    def trained(tuning):
        est = Estimator.from_torch(
            model=make(SmallResNet), optimizer=all_in_optimizer(), loss=nn.CrossEntropyLoss(), tuning=tuning
        )
        return est.fit(Images(rows=22), epochs=4, batch_size=BATCH, callbacks=[Thaw()])

    plain = trained(OFF)
    capsys.readouterr()
    assert_same(trained(KEPT), plain)
    assert "layers.0.conv.weight is trainable now" in capsys.readouterr().out


def test_the_norms_of_a_frozen_part_rest_in_training_if_the_user_says_so():
    before = {name: value.clone() for name, value in make(SmallResNet).state_dict().items()}
    after = fit(tuning=OFF).state_["model"]
    assert torch.equal(after["stem.1.running_mean"], before["stem.1.running_mean"])
    assert not torch.equal(after["layers.1.bn.running_mean"], before["layers.1.bn.running_mean"])
    awake = fit(lambda: SmallResNet().train(), tuning=OFF).state_["model"]
    assert not torch.equal(awake["stem.1.running_mean"], before["stem.1.running_mean"])


def test_norms_that_are_awake_are_named_once(capsys):
    fit(lambda: SmallResNet().train(), verbose=1)
    assert capsys.readouterr().out.count("stem.1 (BatchNorm2d) is in training mode") == 1


def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path):
    whole = fit(tuning=KEPT, epochs=4)

    def some(max_steps, resume):
        model = make(SmallResNet)
        est = Estimator.from_torch(
            model=model,
            optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9),
            loss=nn.CrossEntropyLoss(),
            tuning=KEPT,
            model_dir=tmp_path / "run",
        )
        data = Images(rows=22)
        return est.fit(data, epochs=4, batch_size=BATCH, max_steps=max_steps, resume=resume, checkpoint=3, verbose=0)

    some(9, None)
    assert_same(some(None, "auto"), whole)


def test_wishes_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="no frozen='fp8'; there are 'auto', 'off', 'fp32', 'bf16', 'int8'"):
        Tuning(frozen="fp8")
    with pytest.raises(ValueError, match="cache_frozen is True, False or 'auto', but got 'maybe'"):
        Tuning(cache_frozen="maybe")


IMAGES = Images(rows=22)


@pytest.mark.parametrize(
    "shards",
    [
        LoaderShards(IMAGES),
        LoaderShards(DataLoader(IMAGES, batch_size=BATCH, shuffle=True)),
        ArrayShards((IMAGES.x, IMAGES.y)),
        CreatorShards(lambda: (IMAGES.x, IMAGES.y)),
    ],
    ids=["data set", "loader", "arrays", "creator"],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_places_say_which_rows_the_batches_hold(shards, workers):
    for shard in shards.split(workers, Reading(batch_size=BATCH, shuffle=True, seed=5)):
        rows = numbered(shard)
        assert rows.count == 22
        places, batches = list(rows.places(1, 2)), list(shard.batches(1, 2))
        assert len(places) == len(batches) == 4
        for place, batch in zip(places, batches, strict=True):
            assert (place.start, place.rows, place.batch_rows) == (batch.start, batch.rows, batch.batch_rows)
            inputs, targets = rows.read(place.numbers)
            assert np.array_equal(np.asarray(inputs), np.asarray(batch.inputs))
            assert np.array_equal(np.asarray(targets), np.asarray(batch.targets))
            assert np.array_equal(np.asarray(targets), IMAGES.y.numpy()[list(place.numbers)])


def test_folders_of_killed_runs_do_not_stay(tmp_path):
    left = tmp_path / f"{PREFIX}1-dead"
    left.mkdir()
    (left / "column-0").write_bytes(b"0" * 1000)
    fit(tuning=KEPT)
    assert not Path(left).exists()
