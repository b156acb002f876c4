"""Running a model on trial and leaving no trace in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

import torch
from torch import nn

from seamline.core import rng
from seamline.frameworks.torch.frozen.bits import same_bits

_STRUCTURE = {"_parameters", "_modules"}


class Snapshot:
    """What a model's modules, gradients and the random generators hold; as a context, it is put back at the end."""

    def __init__(self, model: nn.Module) -> None:
        self._attributes = {module: _copied(vars(module)) for module in model.modules()}
        self._tensors = {id(t): (t, t.detach().clone()) for t in self._held()}
        self._gradients = [(parameter, parameter.grad) for parameter in model.parameters()]

    def __enter__(self) -> Snapshot:
        for parameter, _ in self._gradients:
            parameter.grad = None
        self._generators = rng.state(), torch.random.get_rng_state()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        rng.set_state(self._generators[0])
        torch.random.set_rng_state(self._generators[1])
        for parameter, gradient in self._gradients:
            parameter.grad = gradient
        for module, before in self._attributes.items():
            _put_back(vars(module), before)
        with torch.no_grad():
            for tensor, content in self._tensors.values():
                # Not by version: batch normalisation changes its statistics without counting it.
                if not same_bits(tensor, content):
                    tensor.copy_(content)

    def changed(self, module: nn.Module) -> str | None:
        """The attribute of this module, if any, that was set or filled since; buffers are not looked at."""
        before, now = self._attributes[module], _copied(vars(module))
        for name in before.keys() | now.keys():
            if name not in before or name not in now:
                return name
            (held, content), (holds, contains) = before[name], now[name]
            if held is not holds or (name != "_buffers" and not _same_content(content, contains)):
                return name
        return None

    def _held(self) -> Iterator[torch.Tensor]:
        for attributes in self._attributes.values():
            for held, _ in attributes.values():
                values = held.values() if isinstance(held, dict) else held if isinstance(held, list) else (held,)
                for value in values:
                    if isinstance(value, torch.Tensor) and not value.is_inference() and value.is_leaf:
                        yield value


def generators() -> tuple[Any, ...]:
    """Where the generators of Python, numpy and torch are, to compare."""
    (python, (_, numbers, *more)), ours = rng.state(), torch.random.get_rng_state()
    return python, numbers.tobytes(), *more, ours.numpy().tobytes()


def _copied(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each attribute with a copy of what it contains, where that could be changed in place."""
    copied = {}
    for name, value in attributes.items():
        if name not in _STRUCTURE and not name.endswith("_hooks"):
            copied[name] = value, (value.copy() if type(value) in (list, dict, set) else None)
    return copied


def _put_back(attributes: dict[str, Any], before: dict[str, tuple[Any, Any]]) -> None:
    for name in [n for n in attributes if n not in before and n not in _STRUCTURE and not n.endswith("_hooks")]:
        del attributes[name]
    for name, (value, content) in before.items():
        attributes[name] = value
        if isinstance(content, list):
            value[:] = content
        elif content is not None:
            value.clear()
            value.update(content)


def _same_content(before: Any, now: Any) -> bool:
    if before is None or now is None:
        return before is now
    pairs = zip(_flat(before), _flat(now), strict=True)
    return len(before) == len(now) and all(one is other for one, other in pairs)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, dict):
        return [part for item in values.items() for part in item]
    return sorted(values, key=id) if isinstance(values, set) else list(values)
