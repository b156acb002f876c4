"""Between what a user passes to a model and flat tensors, without any process."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.frameworks.torch.inference.form import CallForm, FlatModel, Form, from_json, to_json
from seamline.frameworks.torch.inference.portable import first_call
from seamline.frameworks.torch.inference.samples import as_call, calls, sample_call

Pair = namedtuple("Pair", "left right")
X, Y = torch.arange(6.0).reshape(3, 2), torch.arange(3)


class Nested(nn.Module):
    def forward(self, x, options, scale=2.0, *, mask=None):
        total = (x + options["shift"][0]) * scale
        return {"total": total if mask is None else total * mask, "pair": Pair(total[:, 0], None)}


def test_positions_keywords_and_nesting_reach_the_model_as_they_would():
    model = Nested()
    options = {"shift": [torch.ones(3, 2), "ignored"]}
    form = CallForm.of(model, (X, options), {"mask": X})
    expected = model(X, options, mask=X)
    for args, kwargs in [((X, options), {"mask": X}), ((X,), {"mask": X, "options": options})]:
        tensors = form.flatten(args, kwargs)
        assert len(tensors) == 3
        answer = form.outputs.rebuild(FlatModel(model, form)(*tensors))
        assert torch.equal(answer["total"], expected["total"])
        assert torch.equal(answer["pair"].left, expected["pair"].left)
        assert answer["pair"].right is None


def test_what_was_fixed_must_stay():
    form = CallForm.of(Nested(), (X, {"shift": [X]}, 3.0), {})
    with pytest.raises(ValueError, match=r"\[2\] was fixed to 3.0 when the model was optimised, but is 4.0 now"):
        form.flatten((X, {"shift": [X]}, 4.0), {})
    with pytest.raises(TypeError, match="should be a dict of 'shift'"):
        form.flatten((X, {"other": [X]}, 3.0), {})
    with pytest.raises(TypeError, match="argument 'options' is missing"):
        form.flatten((X,), {"scale": 3.0})


def test_structures_survive_as_json():
    structure = Form.of(({"a": [X, None, 3]}, (X, "text"))).structure
    assert from_json(to_json(structure)) == structure


class One(nn.Module):
    def forward(self, x):
        return x


class Two(nn.Module):
    def forward(self, a, b, c=None):
        return a


@pytest.mark.parametrize(
    ("model", "item", "args", "kwargs", "targets"),
    [
        (One(), X, 1, [], False),
        (One(), X.numpy(), 1, [], False),
        (One(), (X, Y), 1, [], True),
        (One(), [X, Y], 1, [], True),
        (Two(), (X, X), 2, [], False),
        (Two(), (X, X, Y), 2, [], True),
        (Two(), ((X, X), Y), 2, [], True),
        (Two(), {"a": X, "b": X, "labels": Y}, 0, ["a", "b"], True),
        (Two(), ({"a": X, "b": X}, Y), 0, ["a", "b"], True),
    ],
)
def test_what_is_input_and_what_is_target(model, item, args, kwargs, targets):
    call = as_call(model, item)
    assert len(call.args) == args
    assert sorted(call.kwargs) == kwargs
    assert (call.targets is not None) == targets
    assert all(isinstance(value, torch.Tensor) for value in (*call.args, *call.kwargs.values()))


def test_every_kind_of_data_gives_calls():
    loader = DataLoader(TensorDataset(X, Y), batch_size=2)
    assert [len(call.args[0]) for call in calls(One(), loader)] == [2, 1]
    assert next(calls(One(), TensorDataset(X, Y))).args[0].shape == (3, 2)
    assert next(calls(One(), np.zeros((4, 2)))).args[0].dtype == torch.float32
    assert sample_call(Two(), (X, X)).args[1] is not None
    with pytest.raises(ValueError, match="nothing to call the model with; give training_data=, validation_data= or"):
        first_call(One(), None, None, None)
