"""With a frozen part a model learns what it learns without one."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from seamline.frameworks.torch.frozen import FrozenPart
from tests.frameworks.frozen.networks import (
    ROWS,
    Images,
    Lightningish,
    SmallResNet,
    backbone,
    frozen,
    in_a_row,
    orders,
)
from tests.frameworks.frozen.training import assert_close, assert_same_bits, find, load_rows, loader, make, train

KINDS = {"in a row": in_a_row, "cut inside": SmallResNet, "training_step": Lightningish}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


def images(kind, **options):
    return Images(as_dict=kind is Lightningish, **options)


def test_the_gradients_of_every_step_are_those_of_the_plain_run_to_the_bit(kind):
    expected = train(make(kind), images(kind))
    model, data = make(kind), images(kind)
    with find(model, data) as part:
        assert_same_bits(train(model, data, part=part), expected)


@pytest.mark.parametrize("by_row", [True, False], ids=["rows can be loaded", "only whole epochs"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_remembered_features_give_the_gradients_of_the_plain_run_to_the_bit(kind, drop_last, by_row):
    expected = train(make(kind), images(kind), drop_last=drop_last)
    model, data = make(kind), images(kind)
    with find(model, data) as part:
        assert part.cache(ROWS, exact=True)
        seen = train(model, data, part=part, drop_last=drop_last, by_row=by_row)
    assert_same_bits(seen, expected)


def test_bf16_features_keep_the_gradients_close(kind):
    expected = train(make(kind), images(kind), epochs=1)
    model, data = make(kind), images(kind)
    part = find(model, data, precision="bf16", way="torch-weights-bf16")
    assert part.way.name == "torch-weights-bf16"
    with part:
        seen = train(model, data, part=part, epochs=1)
    assert_close(seen, expected, within=0.1)
    assert not torch.equal(seen[0][0], expected[0][0])


def test_the_part_is_found_where_most_is_frozen():
    names = {"in a row": "", "cut inside": "", "training_step": "backbone"}
    for name, kind in KINDS.items():
        assert find(make(kind), images(kind)).name == names[name]


def test_looking_for_the_part_leaves_the_model_and_the_random_numbers_alone(kind):
    model, data = make(kind), images(kind)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    torch.manual_seed(5)
    find(model, data)
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3), drawn)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())


def test_state_names_and_copies_of_the_model_are_as_ever(kind):
    model, data = make(kind), images(kind)
    plain = copy.deepcopy(model)
    with find(model, data):
        assert list(model.state_dict()) == list(plain.state_dict())
        assert [name for name, _ in model.named_modules()] == [name for name, _ in plain.named_modules()]
        written = io.BytesIO()
        torch.save(model, written)
        written.seek(0)
        for copied in (
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
            torch.load(written, weights_only=False),
        ):
            assert torch.equal(copied.eval()(data.x), plain.eval()(data.x))
            assert all(module.forward.__self__ is module for module in copied.modules())


def test_removing_restores_the_module_exactly(kind):
    model, data = make(kind), images(kind)
    before = [dict(vars(module)) for module in model.modules()]
    part = find(model, data)
    part.install()
    assert any("forward" in vars(module) for module in model.modules())
    part.remove()
    assert [dict(vars(module)) for module in model.modules()] == before


def test_evaluation_gives_the_plain_answers(kind):
    model, data = make(kind), images(kind)
    plain = copy.deepcopy(model).eval()
    with find(model, data), torch.no_grad():
        model.eval()
        assert torch.equal(model(data.x), plain(data.x))


def test_switches_that_the_code_reads_still_act():
    model, data = make(SmallResNet), Images()
    with find(model, data), torch.no_grad():
        one = model(data.x[:4])
        model.scale = 3.0
        assert torch.allclose(model(data.x[:4]), one * 3, rtol=1e-3)


class Auxiliary(nn.Module):
    """A backbone that answers otherwise in training."""

    def __init__(self):
        super().__init__()
        self.body = frozen(backbone())

    def forward(self, x):
        x = self.body(x)
        return {"out": x, "auxiliary": x.mean((2, 3))} if self.training else x


class WithAuxiliary(Lightningish):
    def __init__(self):
        super().__init__()
        self.backbone = Auxiliary()

    def training_step(self, batch):
        return self.head(self.backbone(batch["image"])["out"]).square().mean()


def test_a_backbone_that_answers_otherwise_in_evaluation_does_so():
    model, data = make(WithAuxiliary), Images(as_dict=True)
    plain = copy.deepcopy(model).eval()
    with find(model, data) as part, torch.no_grad():
        assert part.name == "backbone"
        model.eval()
        assert torch.equal(model(data.x), plain(data.x))
        model.backbone.train().body.eval()
        assert torch.equal(model.backbone(data.x)["auxiliary"], plain.backbone(data.x).mean((2, 3)))


class Scaling(Lightningish):
    def training_step(self, batch):
        return self.head(self.backbone(batch["image"] / 2)).square().mean()


def test_a_part_that_does_not_see_the_batch_itself_is_made_faster_but_not_cached():
    expected = train(make(Scaling), Images(as_dict=True), epochs=1)
    model, data, said = make(Scaling), Images(as_dict=True), []
    with find(model, data, said=said) as part:
        assert part.name == "backbone"
        assert part.cache(ROWS) is False
        assert "computed from the batch first; do that in the data set" in said[-1]
        assert_same_bits(train(model, data, part=part, epochs=1), expected)


def test_under_autocast_the_bits_are_those_of_the_plain_run_under_autocast():
    def under_autocast(model, part, data):
        step, seen = model.training_step, []
        for batches in orders(epochs=2):
            load = loader(data, batches)
            for batch in part.epoch(batches, load, load_rows(data)) if part else load():
                model.zero_grad()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = step(batch)
                loss.backward()
                seen.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        return seen

    def step_under_autocast(model):
        def step(batch):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return model.training_step(batch)

        return step

    data = Images(as_dict=True)
    expected = under_autocast(make(Lightningish), None, data)
    model, said = make(Lightningish), []
    batch = load_rows(data)(next(orders())[0])
    with FrozenPart.of(model, batch, step_under_autocast(model), precision="fp32", say=said.append) as part:
        assert part.cache(ROWS, exact=True)
        assert_same_bits(under_autocast(model, part, data), expected)
