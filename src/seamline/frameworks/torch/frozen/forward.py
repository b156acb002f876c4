"""The ``forward`` that stands in for a module's own while its frozen beginning is taken over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from seamline.frameworks.torch.frozen.site import Site, Tensors
from seamline.frameworks.torch.frozen.stand_in import StandIn, real


class FrozenForward:
    """Asks for features and lets the site do the rest; whatever is unusual goes the plain way.

    Copies of the module, by pickle or ``deepcopy``, get their own plain ``forward``.
    """

    def __init__(self, site: Site, features: Callable[[Tensors], Tensors | None]) -> None:
        self._site = site
        self._features = features
        self._before = vars(site.module).get("forward")
        self._installed = False
        self.__wrapped__ = site.plain  # so that the signature can be looked up

    def install(self) -> None:
        vars(self._site.module)["forward"] = self
        self._installed = True

    def remove(self) -> None:
        self._installed = False
        attributes = vars(self._site.module)
        if attributes.get("forward") is not self:
            return  # somebody has put theirs on top, and through it this one goes the plain way
        if self._before is None:
            del attributes["forward"]
        else:
            attributes["forward"] = self._before

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        aside = not self._installed or torch.compiler.is_compiling()
        inputs = None if aside else self._site.call.tensors((args, kwargs))
        if inputs is None or (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)):
            return self._plainly(args, kwargs)
        features = self._features(inputs)
        return self._plainly(args, kwargs) if features is None else self._site.finish(features, inputs)

    def _plainly(self, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map(lambda leaf: real(leaf) if isinstance(leaf, StandIn) else leaf, (args, kwargs))
        return self._site.plain(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self._before is not None:
            return copy.deepcopy(self._before, memo)
        return own_forward(memo[id(self._site.module)])

    def __reduce__(self) -> Any:
        return (_same, (self._before,)) if self._before is not None else (own_forward, (self._site.module,))


def _same(forward: Any) -> Any:
    return forward


def own_forward(module: nn.Module) -> Any:
    """The ``forward`` of a module's class."""
    return MethodType(type(module).forward, module)
