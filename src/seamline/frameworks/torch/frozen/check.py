"""Whether a frozen beginning always computes the same, and what to do if it does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from seamline.core import rng
from seamline.frameworks.torch.frozen.bits import same_bits
from seamline.frameworks.torch.frozen.layers import follows_mode
from seamline.frameworks.torch.frozen.site import Site, Tensors
from seamline.frameworks.torch.frozen.snapshot import Snapshot, generators
from seamline.frameworks.torch.randomness import seed_everything

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def wrong_mode(parts: Mapping[str, nn.Module], called: str) -> str | None:
    """The sentence on a layer that would change or draw in training mode."""
    for name, part in parts.items():
        if part.training and follows_mode(part):
            what = "its statistics stay" if isinstance(part, (_BatchNorm, _InstanceNorm)) else "it stops drawing"
            return (
                f"{joined(called, name)} ({type(part).__name__}) is in training mode: "
                f"call {called or 'model'}.eval() after train() so that {what}"
            )
    return None


def watched_by_hooks(site: Site, called: str) -> str | None:
    """The sentence on a hook that would not run any more."""
    inside = {name: part for name, part in {**site.parts(), **site.inlined}.items() if part is not site.module}
    for name, part in inside.items():
        if any(getattr(part, hooks) for hooks in _HOOKS):
            return f"{joined(called, name)} has a hook: remove it, for it would not run in every step"
    return None


def objection(site: Site, called: str) -> str | None:
    """Why a beginning cannot be taken over, judged by what it is made of."""
    parts = site.parts()
    for name, part in parts.items():
        if parametrize.is_parametrized(part):
            return f"{joined(called, name)} is parametrized, so its weights are computed in every call"
        if isinstance(part, torch.jit.ScriptModule):
            return f"{joined(called, name)} is a script, which cannot be looked into"
    return wrong_mode(parts, called) or watched_by_hooks(site, called)


def varies(site: Site, inputs: Tensors, called: str) -> str | None:
    """Why a beginning does not give the same answer each time, found by calling it twice."""
    tensors = site.own_tensors()
    buffers = {name: t.detach().clone() for name, t in tensors.items() if not isinstance(t, nn.Parameter)}
    answers = []
    for seed in (1, 2):
        seed_everything(rng.derive(seed))
        before = generators()
        with torch.no_grad():
            answers.append(site.features(inputs))
        if generators() != before:
            return f"{called or 'the model'} draws random numbers before its first trainable layer"
    changed = next((name for name, buffer in buffers.items() if not same_bits(tensors[name], buffer)), None)
    if changed is not None:
        return f"{joined(called, changed)} changes in every call"
    if not all(map(same_bits, *answers)):
        return f"{called or 'the model'} gives another answer each time"
    return None


def cut_differs(site: Site, inputs: Tensors, called: str) -> str | None:
    """Whether the module, computed in two steps, gives another answer than in one."""
    args, kwargs = site.call.rebuild(inputs)

    def in_two_steps() -> Any:
        with torch.no_grad():
            features = site.features(inputs)
        return site.finish(features, inputs)

    ways: list[Callable[[], Any]] = [lambda: site.plain(*args, **kwargs), in_two_steps]
    answers = []
    for way in ways:
        with Snapshot(site.module):
            seed_everything(rng.derive(5))
            answers.append([leaf for leaf in pytree.tree_leaves(way()) if isinstance(leaf, torch.Tensor)])
    same = len(answers[0]) == len(answers[1]) and all(map(same_bits, *answers))
    return None if same else f"{called or 'the model'}, cut in two, gives another answer"


def joined(*names: str) -> str:
    return ".".join(filter(None, names)) or "the model"
