"""Batch normalisation folded into the convolutions before it."""

from __future__ import annotations

from typing import Any, cast

from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

_PAIRS: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
}


def fold(model: nn.Module) -> nn.Module:
    """Change a traced model in evaluation mode in place, where a convolution feeds its normalisation and nothing else.

    A model that is not traced stays as it is.
    """
    if not isinstance(model, fx.GraphModule):
        return model
    targets = [str(node.target) for node in model.graph.nodes if node.op == "call_module"]
    for node in list(model.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        convolution: Any = model.get_submodule(str(before.target))
        norm: Any = model.get_submodule(str(node.target))
        once = targets.count(str(before.target)) == targets.count(str(node.target)) == 1
        if once and type(norm) is _PAIRS.get(type(convolution)) and norm.track_running_stats:
            fused: nn.Module = fuse_conv_bn_eval(convolution, cast("Any", norm))
            model.set_submodule(str(before.target), fused)
            node.replace_all_uses_with(before)
            model.graph.erase_node(node)
    model.recompile()
    return model
