"""Where a model is cut: a frozen beginning that gives features, and the rest that takes them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import fx, nn

from seamline.frameworks.torch.frozen.bits import same_bits
from seamline.frameworks.torch.frozen.call import Shape
from seamline.frameworks.torch.frozen.layers import follows_mode, is_torchs_own
from seamline.frameworks.torch.frozen.trace import CannotTraceError, trace

Tensors = Sequence[torch.Tensor]


class Site(Protocol):
    """One module whose ``forward`` is taken over, and its frozen beginning."""

    module: nn.Module
    call: Shape
    inlined: dict[str, nn.Module]
    """Modules whose own code is followed instead of being called; their hooks would not run."""
    example: list[torch.Tensor]
    """Features of the inputs that it was made with."""

    def parts(self) -> dict[str, nn.Module]:
        """The modules of the frozen beginning by name, those inside of others too."""
        ...

    def own_tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers of the beginning by name."""
        ...

    def plain(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own ``forward``."""
        ...

    def features(self, inputs: Tensors) -> list[torch.Tensor]:
        """What the beginning computes, with the modules as they are now."""
        ...

    def finish(self, features: Tensors, inputs: Tensors) -> Any:
        """What the module returns, given the features."""
        ...

    def ready(self) -> bool:
        """Whether the module is in a state for which the cut was made."""
        ...

    def reads_input(self, number: int) -> bool:
        """Whether the rest looks at more of an input than its shape."""
        ...

    def copied(self) -> nn.Module:
        """The beginning as a module of its own: flat tensors in, a tuple of features out."""
        ...


class Whole:
    """A module that is frozen from end to end."""

    def __init__(self, module: nn.Module, call: Shape, inputs: Tensors) -> None:
        self.module = module
        self.call = call
        self.inlined: dict[str, nn.Module] = {}
        self.plain = module.forward
        with torch.no_grad():
            answer = self._run(inputs)
        self._answer = Shape.of(answer)
        self.example = self._answer.tensors(answer) or []
        if self._answer.strange is not None:
            raise CannotTraceError(f"its output holds a {self._answer.strange}")
        written = (part for part in module.modules() if not is_torchs_own(part) and not follows_mode(part))
        self._written_by_users = list(written)
        self._modes = self._modes_now()
        self._any_mode = self._same_in_other_mode(inputs)

    def parts(self) -> dict[str, nn.Module]:
        return dict(self.module.named_modules())

    def own_tensors(self) -> dict[str, torch.Tensor]:
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def features(self, inputs: Tensors) -> list[torch.Tensor]:
        found = self._answer.tensors(self._run(inputs))
        if found is None:
            raise CannotTraceError("its output changes its form from call to call")
        return found

    def finish(self, features: Tensors, inputs: Tensors) -> Any:
        return self._answer.rebuild(features)

    def ready(self) -> bool:
        return self._any_mode or self._modes_now() == self._modes

    def _modes_now(self) -> list[bool]:
        return [part.training for part in self._written_by_users]

    def _same_in_other_mode(self, inputs: Tensors) -> bool:
        """Whether code that may ask for its mode does the same in training and in evaluation."""
        for part, mode in zip(self._written_by_users, self._modes, strict=True):
            part.training = not mode
        try:
            with torch.no_grad():
                other = self._answer.tensors(self._run(inputs))
        except Exception:  # the user's code, in a mode in which it may never be called
            return False
        finally:
            for part, mode in zip(self._written_by_users, self._modes, strict=True):
                part.training = mode
        return other is not None and all(map(same_bits, other, self.example))

    def reads_input(self, number: int) -> bool:
        return False

    def copied(self) -> nn.Module:
        module = copy.deepcopy(self.module)
        try:
            graph = trace(module, self.call, is_torchs_own, flat=True)
        except CannotTraceError:
            return _Flat(module, self.call, self._answer)
        return fx.GraphModule(module, graph)

    def _run(self, inputs: Tensors) -> Any:
        args, kwargs = self.call.rebuild(inputs)
        return self.plain(*args, **kwargs)


class _Flat(nn.Module):
    """A module as a function of flat tensors."""

    def __init__(self, module: nn.Module, call: Shape, answer: Shape) -> None:
        super().__init__()
        self.module = module
        self._call = call
        self._answer = answer

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        args, kwargs = self._call.rebuild(tensors)
        found = self._answer.tensors(self.module(*args, **kwargs))
        assert found is not None
        return tuple(found)
