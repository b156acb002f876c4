"""Features are computed once, and nothing else about the data is different."""

import itertools

import pytest
import torch
from torch.utils.data import default_collate

from seamline.frameworks.torch.frozen import repeatable
from seamline.frameworks.torch.frozen.stand_in import StandIn
from tests.frameworks.frozen.networks import BATCH, ROWS, Images, Lightningish, in_a_row
from tests.frameworks.frozen.training import assert_same_bits, find, load_rows, loader, make, orders, train


def counting_calls(module):
    """How often a module has run, by its weights' use; a hook would be noticed."""
    calls, original = [], type(module).forward

    class Counted(type(module)):
        def forward(self, x):
            calls.append(len(x))
            return original(self, x)

    module.__class__ = Counted
    return calls


def test_later_epochs_read_one_batch_each_and_compute_a_few_rows_of_it():
    model, data = make(in_a_row), Images(rows=20)
    calls = counting_calls(model[0][3])
    with find(model, data) as part:
        assert part.cache(20, exact=True)
        train(model, data, part=part, epochs=1)
        data.reads, calls[:] = 0, []
        train(model, data, part=part, epochs=4)
    assert data.reads == 4 * BATCH
    assert calls == [4] * 4


def test_rows_that_were_never_seen_are_looked_up_when_they_come():
    model, data = make(in_a_row), Images(rows=23)
    with find(model, data) as part:
        part.cache(23, exact=True)
        train(model, data, part=part, epochs=1, drop_last=True)
        data.reads = 0
        train(model, data, part=part, epochs=6, drop_last=True)
    assert 0 < data.reads <= 6 * BATCH + 3


def test_a_data_set_that_changes_is_caught_and_the_epoch_goes_on_with_the_truth():
    def run(cached):
        model, data, said = make(in_a_row), Images(rows=20), []
        part = find(model, data, said=said) if cached else None
        if part:
            part.install()
            part.cache(20, exact=True)
        seen = train(model, data, part=part, epochs=2)
        data.x = data.x + 1
        seen += train(model, data, part=part, epochs=2)
        if part:
            part.remove()
        return seen, said

    expected, _ = run(cached=False)
    seen, said = run(cached=True)
    assert_same_bits(seen, expected)
    assert "features are not cached any more: the data set has changed" in said[-1]


def test_labels_that_change_are_caught_too():
    model, data, said = make(in_a_row), Images(rows=20), []
    with find(model, data, said=said) as part:
        part.cache(20)
        train(model, data, part=part, epochs=1)
        data.y = 2 - data.y
        train(model, data, part=part, epochs=1)
    assert "the data set has changed" in said[-1]


def test_code_that_looks_at_the_images_sees_the_real_ones():
    model, data = make(in_a_row), Images(rows=20)
    second = list(orders(20, epochs=2))[1]
    with find(model, data) as part:
        part.cache(20, exact=True)
        train(model, data, part=part, epochs=1)
        for numbers, (x, y) in zip(second, part.epoch(second, loader(data, second), load_rows(data)), strict=True):
            assert isinstance(x, StandIn)
            assert torch.equal(y, data.y[numbers])
            data.reads = 0
            assert x.shape == (4, 3, 8, 8)
            assert (x.size(0), len(x), x.ndim, x.dtype, x.device.type) == (4, 4, 4, torch.float32, "cpu")
            assert x.to("cpu") is x
            assert x.float() is x
            assert data.reads == 0
            assert torch.equal(x * 1, data.x[numbers])
            assert torch.equal(torch.from_numpy(x.numpy()), data.x[numbers])
            assert torch.equal(x[1], data.x[numbers[1]])
            assert x.tolist() == data.x[numbers].tolist()
            assert data.reads == 4
            assert torch.equal(x[1:3].mean((1, 2, 3)), data.x[numbers[1:3]].mean((1, 2, 3)))


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_scripts_see_the_real_images_too():
    model, data = make(in_a_row), Images(rows=20)
    doubled = torch.jit.freeze(torch.jit.script(Doubled().eval()))
    with find(model, data) as part:
        part.cache(20)
        train(model, data, part=part, epochs=1)
        batches = next(orders(20))
        x, _ = next(part.epoch(batches, loader(data, batches), load_rows(data)))
        assert torch.equal(doubled(x), 2 * data.x[batches[0]])


class Doubled(torch.nn.Module):
    def forward(self, x):
        return x * 2


def test_changing_an_image_in_place_changes_what_the_model_computes():
    model, data = make(in_a_row).eval(), Images(rows=20)
    plain = make(in_a_row).eval()
    batches = next(orders(20))
    with find(model, data) as part, torch.no_grad():
        part.cache(20)
        for batch in part.epoch(batches, loader(data, batches), load_rows(data)):
            model(batch[0])
        x, _ = next(part.epoch(batches, loader(data, batches), load_rows(data)))
        assert torch.equal(model(x), plain(data.x[batches[0]]))
        x.mul_(2)
        assert torch.equal(model(x), plain(data.x[batches[0]] * 2))
        x[0] = 0
        expected = data.x[batches[0]] * 2
        expected[0] = 0
        assert torch.equal(model(x), plain(expected))


def test_images_that_are_changed_in_place_before_the_model_are_not_remembered():
    model, data, said = make(in_a_row), Images(rows=20), []
    batches = next(orders(20))
    with find(model, data, said=said) as part:
        part.cache(20)
        for x, _ in part.epoch(batches, loader(data, batches), load_rows(data)):
            model(x.div_(2))
    assert "changed in place" in said[-1]


def test_dicts_stay_dicts():
    model, data = make(Lightningish), Images(as_dict=True)
    with find(model, data) as part:
        part.cache(ROWS)
        train(model, data, part=part, epochs=1)
        batches = next(orders())
        batch = next(part.epoch(batches, loader(data, batches), load_rows(data)))
    assert list(batch) == ["image", "label"]
    assert torch.equal(batch["label"], data.y[batches[0]])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (Images(), None),
        (Images(noise=0.1), "draws random numbers"),
        (itertools.count(), "reads differently each time"),
    ],
)
def test_a_random_input_pipeline_is_found_out(data, words):
    if isinstance(data, itertools.count):
        counter = data

        class Stream:
            def __getitem__(self, index):
                return torch.tensor(next(counter))

        data = Stream()
    torch.manual_seed(4)
    problem = repeatable(data, default_collate, [0, 1, 2])
    assert (problem is None) if words is None else (words in problem)
    drawn = torch.rand(1)
    torch.manual_seed(4)
    assert torch.equal(torch.rand(1), drawn)
