"""Faster ways to compute features are tried, checked, and chosen only if they are both right and faster."""

import pytest
import torch
from torch import nn

from seamline.core import machine
from seamline.frameworks.torch.frozen import fast
from seamline.frameworks.torch.frozen.ambient import Ambient
from seamline.frameworks.torch.frozen.call import Shape
from seamline.frameworks.torch.frozen.fast import PLAIN, Way, fastest, ways
from seamline.frameworks.torch.frozen.fold import fold
from seamline.frameworks.torch.frozen.site import Whole
from tests.frameworks.frozen.networks import Images, Residual, backbone, frozen, in_a_row
from tests.frameworks.frozen.training import assert_close, find, make, train

X = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def site_of(module):
    return Whole(module, Shape.of(((X,), {})), [X])


def tried(module, precision, only=None):
    return ways(site_of(module), [X], precision, Ambient.now("cpu"), only)


def learned_norms(module):
    """Statistics that are not those of a new layer."""
    torch.manual_seed(1)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.weight, 0.5, 2)
            nn.init.normal_(part.bias)
            part.running_mean.normal_()
            part.running_var.uniform_(0.5, 2)
    return module


def test_fp32_is_the_plain_way_and_nothing_else():
    found, failed = tried(frozen(backbone()), "fp32")
    assert [way.name for way in found] == [PLAIN]
    assert failed == {}


def test_bf16_ways_are_close_and_give_what_the_plain_one_gives():
    module = learned_norms(frozen(backbone()))
    found, _ = tried(module, "bf16")
    expected = module(X)
    offered = {"torch-channels-last-bf16", "torch-weights-bf16"} if machine.has_bf16() else {PLAIN}
    assert offered <= {way.name for way in found}
    for way in found[1:]:
        (features,) = way.compute([X])
        assert 0 < way.distance <= 2e-2
        assert fast.distance([features], [expected]) == pytest.approx(way.distance, rel=1e-3)
        assert (features.dtype, features.is_contiguous(), features.is_inference()) == (torch.float32, True, False)


@pytest.mark.parametrize("way", ["openvino-fp32", pytest.param("openvino-int8", marks=pytest.mark.slow)])
def test_another_runtime_gives_features_that_a_head_can_learn_from(way, monkeypatch):
    monkeypatch.setattr(fast, "WORTH_EXPORTING_S", 0.0)
    data = Images()
    expected = train(make(in_a_row), data, epochs=1)
    model = make(in_a_row)
    part = find(model, data, precision="int8" if way.endswith("int8") else "auto", way=way)
    assert part.way.name == way
    with part:
        assert_close(train(model, data, part=part, epochs=1), expected, within=0.5 if way.endswith("int8") else 1e-3)


def test_features_that_are_too_far_off_are_not_used(monkeypatch):
    monkeypatch.setitem(fast.FARTHEST, "bf16", 1e-9)
    found, failed = tried(learned_norms(frozen(backbone())), "bf16")
    assert [way.name for way in found] == [PLAIN]
    assert all("away from the plain ones" in why or "would not pay" in why for why in failed.values())


def test_a_module_that_cannot_be_copied_runs_as_it_is():
    class Uncopied(nn.Sequential):
        def __deepcopy__(self, memo):
            raise TypeError("there can be only one")

    found, failed = tried(Uncopied(frozen(backbone())), "bf16")
    assert [way.name for way in found] == [PLAIN]
    assert failed == {"copy": "there can be only one"}


def test_the_plain_way_stays_unless_another_is_clearly_faster():
    def taking(seconds, name="other"):
        return Way(name, "bf16", list, seconds)

    plain = taking(1.0, PLAIN)
    assert fastest([plain, taking(0.95)]) is plain
    assert fastest([plain, taking(0.5, "best"), taking(0.7)]).name == "best"


def test_normalisation_is_folded_into_convolutions_that_feed_nothing_else():
    module = learned_norms(frozen(nn.Sequential(nn.Conv2d(3, 8, 1), Residual(), nn.BatchNorm2d(8))))
    folded = fold(site_of(module).copied().eval())
    norms = [node for node in folded.graph.nodes if "bn" in str(node.target) or str(node.target) == "2"]
    assert len(norms) == 1, "the last one follows a sum, not a convolution"
    torch.testing.assert_close(folded(X)[0], module(X))
