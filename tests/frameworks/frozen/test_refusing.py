"""What is not surely the same is left alone, and the user is told what to do."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from tests.frameworks.frozen.networks import ROWS, Images, Lightningish, SmallResNet, in_a_row
from tests.frameworks.frozen.training import assert_same_bits, find, load_rows, loader, make, orders, train


def refusal(model, data=None):
    said = []
    assert find(model, data or Images(), said=said) is None
    assert len(said) == 1
    return said[0]


def test_batch_norm_in_training_mode_is_named_with_what_to_do():
    model = make(in_a_row).train()
    assert "0.1 (BatchNorm2d) is in training mode: call model.eval()" in refusal(model)
    model = make(Lightningish).train()
    line = refusal(model, Images(as_dict=True))
    assert "backbone.1 (BatchNorm2d) is in training mode: call backbone.eval()" in line


def test_dropout_in_training_mode_is_named():
    model = make(in_a_row)
    model[0].append(nn.Dropout2d(0.1))
    assert "0.5 (Dropout2d) is in training mode" in refusal(model)


def test_dropout_that_drops_nothing_is_no_obstacle():
    model = make(in_a_row)
    model[0].append(nn.Dropout2d(0.0))
    assert find(model, Images()) is not None


def test_a_hook_inside_is_named():
    model = make(in_a_row)
    model[0][3].register_forward_hook(lambda *_: None)
    assert "0.3 has a hook" in refusal(model)


def test_a_parametrized_layer_is_named():
    model = make(in_a_row)
    parametrizations.weight_norm(model[0][3])
    model[0].requires_grad_(False)
    assert "0.3 is parametrized" in refusal(model)


class Noisy(nn.Module):
    """Draws in a way that no list of layers knows; at this strength two answers are often the same."""

    def forward(self, x):
        return x * (torch.rand(()) > 1e-6)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x


class BatchMean(nn.Module):
    """A row's features depend on the other rows."""

    def forward(self, x):
        return x - x.mean(0)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        self.last = self.body(x.mean((2, 3))[:, :1].repeat(1, 4))
        return self.head(self.last)


@pytest.mark.parametrize(
    ("layer", "words"),
    [(Noisy, "draws random numbers"), (Counting, "0.5.calls changes in every call")],
)
def test_a_layer_of_the_users_that_varies_is_found_out(layer, words):
    model = make(in_a_row)
    model[0].append(layer())
    assert words in refusal(model)


def test_code_that_leaves_something_behind_in_the_module_is_not_cut():
    model = make(Remembering)
    part = find(model, Images())
    assert part is None or part.name == "body"
    assert not isinstance(getattr(model, "last", None), torch.fx.Proxy)


def test_features_that_depend_on_the_rest_of_the_batch_are_not_kept():
    model, said = make(in_a_row), []
    model[0].append(BatchMean())
    part = find(model, Images(), said=said)
    assert part.cache(ROWS, exact=True) is False
    assert "depend on the other rows" in said[-1]


def test_strings_in_a_batch_are_not_kept_and_the_line_says_so():
    class Captioned(Images):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "caption": f"row {index}"}

    said = []
    part = find(make(Lightningish), Captioned(as_dict=True), said=said)
    assert part.cache(ROWS) is False
    assert "holds str, and only tensors can be kept" in said[-1]


def test_a_model_without_frozen_parameters_needs_no_words():
    said = []
    assert find(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), Images(), said=said) is None
    assert said == []


def test_an_input_that_wants_gradients_gets_them():
    model, data = make(in_a_row), Images()
    with find(model, data):
        x = data.x[:4].clone().requires_grad_()
        model(x).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0


# Stepping back


def test_thawing_in_the_middle_of_an_epoch_steps_back_at_once_and_learns_what_the_plain_run_does():
    def thawing(model):
        def every_step(step):
            if step == 8:
                model.layers[0].requires_grad_(True)

        return every_step

    def trained(kind, cached):
        model, data, said = make(SmallResNet), Images(), []
        part = find(model, data, said=said) if cached else None
        if part is None:
            return train(model, data, every_step=thawing(model)), said
        with part:
            part.cache(ROWS, exact=True)
            return train(model, data, part=part, every_step=thawing(model)), said

    expected, _ = trained(SmallResNet, False)
    seen, said = trained(SmallResNet, True)
    assert_same_bits(seen, expected)
    assert len(seen[7]) < len(seen[8])
    assert "layers.0.conv.weight is trainable now" in said[-1]


def test_waking_the_batch_norms_steps_back_and_says_so():
    model, data, said = make(in_a_row), Images(), []
    plain = make(in_a_row)
    with find(model, data, said=said):
        for each in (model, plain):
            torch.manual_seed(0)
            each.train()
            each(data.x)
    assert "0.1 (BatchNorm2d) is in training mode" in said[-1]
    for (name, ours), theirs in zip(model.state_dict().items(), plain.state_dict().values(), strict=True):
        assert torch.equal(ours, theirs), name


def test_other_weights_are_noticed_and_the_same_ones_written_again_are_not():
    model, data, said = make(in_a_row), Images(), []
    other = {name: value + 1 for name, value in model.state_dict().items()}
    with find(model, data, said=said):
        model.load_state_dict(model.state_dict())
        model(data.x[:4])
        assert len(said) == 1
        model.load_state_dict(other)
        plain = make(in_a_row)
        plain.load_state_dict(other)
        assert torch.equal(model.eval()(data.x), plain.eval()(data.x))
        assert "was changed" in said[-1]


def test_a_hook_that_comes_later_is_noticed_with_the_next_epoch():
    model, data, said, calls = make(in_a_row), Images(), [], []
    part = find(model, data, said=said)
    with part:
        part.cache(ROWS)
        train(model, data, part=part, epochs=2)
        model[0][0].register_forward_hook(lambda *_: calls.append(1))
        batches = next(orders())
        for batch in part.epoch(batches, loader(data, batches), load_rows(data)):
            model(batch[0])
    assert len(calls) == len(batches)
    assert "0.0 has a hook" in said[-1]
