"""Between what a user passes to a model and flat tensors, without any process."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from seamline.frameworks.torch.inference.form import CallForm, FlatModel, Form
from seamline.frameworks.torch.inference.portable import first_call
from seamline.frameworks.torch.inference.samples import as_call, calls, sample_call
from seamline.frameworks.torch.inference.structure import Answer, from_json, to_json

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


@dataclass
class Found:
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    layers: tuple = ()
    count: int = field(default=0, init=False)


@dataclass
class Mapped(OrderedDict):
    """A dataclass that is a dict too, as the outputs of transformers are."""

    logits: torch.Tensor
    loss: torch.Tensor | None = None

    def __post_init__(self):
        self.update({name: value for name, value in vars(self).items() if value is not None})


class Answering(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x, loud=False, *, times=2):
        return self.kind(logits=x * times)


@pytest.mark.parametrize("kind", [Found, Mapped])
def test_a_dataclass_comes_back_as_what_it_is(kind):
    form = CallForm.of(Answering(kind), (X,), {})
    (tensor,) = FlatModel(Answering(kind), form)(X)
    answer = form.answer([tensor])
    assert type(answer) is kind
    assert torch.equal(answer.logits, 2 * X)
    assert answer.loss is None
    saved = Form(from_json(to_json(form.outputs.structure)))
    assert type(saved.rebuild([tensor])) is kind
    stranger = Form(from_json({"record": ["nowhere:Kind", [["logits", {"tensor": 0}], ["loss", {"value": None}]]]}))
    answer = stranger.rebuild([tensor])
    assert isinstance(answer, Answer)
    assert answer.logits is answer["logits"] is tensor
    if kind is Mapped:
        assert list(form.answer([tensor])) == ["logits"]


def test_a_dataclass_can_be_an_argument():
    class Taking(nn.Module):
        def forward(self, found):
            return found.logits + found.layers[0]

    form = CallForm.of(Taking(), (Found(X, layers=(X,)),), {})
    assert [tensor.shape for tensor in form.flatten((Found(Y, layers=(X,)),), {})] == [Y.shape, X.shape]
    with pytest.raises(TypeError, match=r"the call\[0\]\[0\] should be a Found"):
        form.flatten((Mapped(X),), {})


def test_an_argument_that_was_left_out_may_have_its_default_and_nothing_else():
    form = CallForm.of(Answering(Found), (X,), {})
    for args, kwargs in [((X,), {"loud": False}), ((X, False), {}), ((), {"x": X, "times": 2, "loud": False})]:
        assert form.flatten(args, kwargs) == [X]
    with pytest.raises(ValueError, match=r"argument 'loud' was False .*, but is True now; optimise with it in the sa"):
        form.flatten((X, True), {})
    with pytest.raises(ValueError, match="argument 'times' was 2 when the model was optimised, but is a tensor now"):
        form.flatten((X,), {"times": X})
    with pytest.raises(TypeError, match="takes no argument 'tims'; it takes x, loud, times"):
        form.flatten((X,), {"tims": 2})
    given = CallForm.of(Answering(Found), (X, False), {"times": 3})
    assert given.flatten((X,), {"times": 3}) == [X]
    with pytest.raises(ValueError, match=r"\['times'\] was fixed to 3 when the model was optimised, but is 2 now"):
        given.flatten((X,), {})


def test_answers_have_the_type_that_the_originals_have():
    form = CallForm.of(Answering(Found), (X.bfloat16(),), {})
    assert form.answer([X]).logits.dtype == torch.bfloat16
    (same,) = form.in_type([X.bfloat16()])
    assert same.dtype == torch.bfloat16


class ByName(nn.Module):
    def forward(self, **inputs):
        return inputs["a"] + inputs["b"]


class MoreByName(nn.Module):
    def forward(self, x, **more):
        return x if "shift" not in more else x + more["shift"]


def test_arguments_by_any_name():
    call = as_call(ByName(), {"a": X, "b": X, "labels": Y})
    assert (sorted(call.kwargs), call.targets is Y) == (["a", "b"], True)
    assert sorted(sample_call(ByName(), {"a": X, "b": X}).kwargs) == ["a", "b"]
    form = CallForm.of(ByName(), (), {"a": X, "b": Y[:, None]})
    assert [t.shape for t in form.flatten((), {"b": Y[:, None], "a": X})] == [X.shape, (3, 1)]
    assert torch.equal(FlatModel(ByName(), form)(X, X)[0], 2 * X)
    with pytest.raises(ValueError, match="argument 'c' was left out when the model was optimised, but is a tensor now"):
        form.flatten((), {"a": X, "b": X, "c": X})
    assert sample_call(MoreByName(), {"shift": X}).args, "a dict without what the model needs is itself the argument"
    form = CallForm.of(MoreByName(), (X,), {"shift": X})
    assert len(form.flatten((), {"x": X, "shift": X})) == 2


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
