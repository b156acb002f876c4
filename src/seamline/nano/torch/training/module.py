"""A model as ``TorchNano`` and ``@nano`` hand it to a training loop: called as before, computed faster."""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from seamline.core import tree
from seamline.frameworks.torch.frozen import FrozenPart
from seamline.frameworks.torch.replica import reached
from seamline.nano.torch.training.choice import PLAIN, Choice, Compile, Form, Setting, candidates
from seamline.nano.torch.training.features import Caching, FeatureLoader, find_frozen, some_frozen
from seamline.nano.torch.training.peers import Peers


class TunedModule(nn.Module):
    """Has the attributes, parameters and state of the original, and trains in step with the other processes."""

    def __init__(
        self,
        model: nn.Module,
        peers: Peers,
        *,
        auto: bool,
        compile_too: Compile,
        bf16: bool | None,
        caching: Caching,
    ) -> None:
        super().__init__()
        self.__dict__["original"] = model  # not as a submodule: names of parameters stay as they are
        self._batch: tuple[Any, float, FeatureLoader | None] = (None, 1.0, None)
        self._caching: Caching = caching
        self._part: FrozenPart | None = None
        self._looks_for_frozen = auto and some_frozen(model)
        self._peers = peers
        self._form = Form(model)
        self._bf16 = bool(bf16)
        """Whether steps run in bf16: the user's wish, or what was chosen."""
        self._choosing = auto
        self._compile = compile_too
        self._may_choose_bf16 = bf16 is None
        self._choice: Choice | None = None
        if auto and peers.size > 1:
            # Gradients travel in buckets that are laid out as the weights are now.
            self._form.apply(Setting(channels_last=True))
        self.__dict__["inner"] = model
        self._checked = peers.size == 1
        if peers.size > 1:
            self.__dict__["inner"] = DistributedDataParallel(model)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        learning = self.training and torch.is_grad_enabled()
        if learning and self._looks_for_frozen:
            self._find_frozen(args, kwargs)
        if learning and self._choosing:
            self._choose()
        try:
            outputs = self._compute(learning, *args, **kwargs)
        except (RuntimeError, TypeError, ValueError) as error:
            if not learning or self._choice is None or not self._choice.give_up(error):
                raise
            outputs = self._compute(learning, *args, **kwargs)
        if self._bf16:
            outputs = tree.map_leaves(_as_float, outputs)
        weight = self._batch[1] if learning else 1.0
        if weight != 1.0:
            for leaf in tree.leaves(outputs):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    leaf.register_hook(lambda gradient: gradient * weight)  # type: ignore[no-untyped-call]
        return outputs

    def follow(self, item: Any, weight: float, features: FeatureLoader | None) -> None:
        """Take note of the batch to come: how much it counts, and who can remember its features."""
        self._batch = item, weight, features

    def _find_frozen(self, args: Any, kwargs: Any) -> None:
        """Look once, with the first batch; what is found has chosen its way, and the rest stays as it is."""
        self._looks_for_frozen = False
        item, _, features = self._batch
        self._part = find_frozen(
            self.original,
            (args, kwargs) if item is None else item,
            lambda _: self.original(*args, **kwargs),
            features,
            self._peers,
            caching=self._caching,
            say=self._say,
        )
        self._choosing = self._choosing and self._part is None

    def _compute(self, learning: bool, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bf16):
            outputs = (self.inner if learning else self.original)(*args, **kwargs)
            if learning and not self._checked and self._leaves_some_out(outputs):
                outputs = self.inner(*args, **kwargs)
        return outputs

    def _leaves_some_out(self, outputs: Any) -> bool:
        """Whether some parameters take no part; then it costs time, but they have to be looked for in each step."""
        self._checked = True
        trainable = sum(parameter.requires_grad for parameter in self.original.parameters())
        tensors = [leaf for leaf in tree.leaves(outputs) if isinstance(leaf, torch.Tensor)]
        unused = torch.tensor(float(len(reached(tensors)) < trainable))
        dist.all_reduce(unused)
        if unused:
            self.__dict__["inner"] = DistributedDataParallel(
                self.original, init_sync=False, find_unused_parameters=True
            )
        return bool(unused)

    def _choose(self) -> None:
        """The time from one training call to the next is a step."""
        if self._choice is None:
            self._choice = Choice(
                candidates(self.original, bf16=self._may_choose_bf16, processes=self._peers.size),
                self._bring_into,
                steps_in_run=float("inf"),
                compile_too=self._compile,
                agree=self._agree,
                say=self._say,
            )
        elif self._choice.chosen is None:
            self._choice.step_done()
        self._choice.next_step()

    def _bring_into(self, setting: Setting) -> None:
        if self._may_choose_bf16:
            self._bf16 = setting.bf16
        self._form.apply(setting)

    def _agree(self, decision: Any) -> Any:
        if self._peers.size == 1:
            return decision
        decisions = [decision]
        dist.broadcast_object_list(decisions, 0)
        return decisions[0]

    def _say(self, line: str) -> None:
        if self._peers.rank == 0:
            print(f"seamline: {line}", flush=True)

    def release(self) -> nn.Module:
        """The original as it came, but for what it has learned."""
        if self._part is not None:
            self._part.remove()
        self._form.apply(PLAIN)
        return cast("nn.Module", self.original)

    # Everything else is the original's

    def train(self, mode: bool = True) -> TunedModule:
        self.training = mode
        self.original.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        if name in ("original", "inner"):
            raise AttributeError(name)
        return getattr(self.__dict__["original"], name)

    def parameters(self, recurse: bool = True) -> Any:
        return self.original.parameters(recurse)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.named_parameters(*args, **kwargs)

    def buffers(self, recurse: bool = True) -> Any:
        return self.original.buffers(recurse)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.named_buffers(*args, **kwargs)

    def modules(self, remove_duplicate: bool = True) -> Any:
        return self.original.modules(remove_duplicate)

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.named_modules(*args, **kwargs)

    def children(self) -> Any:
        return self.original.children()

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.original.load_state_dict(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.original.zero_grad(set_to_none)


def _as_float(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.bfloat16 else value
