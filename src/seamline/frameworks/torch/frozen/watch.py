"""Keeping an eye on a frozen part while others work on the model."""

from __future__ import annotations

import torch
from torch import nn

from seamline.frameworks.torch.frozen.bits import raw
from seamline.frameworks.torch.frozen.check import joined, watched_by_hooks, wrong_mode
from seamline.frameworks.torch.frozen.layers import follows_mode
from seamline.frameworks.torch.frozen.site import Site

LOOK_CLOSER_EVERY = 64
"""Calls between looks at what seldom changes: hooks, and modules that were replaced."""


class Watch:
    """Says when what was found out about a part is true no longer: thawed, in another mode, with other weights."""

    def __init__(self, site: Site, called: str) -> None:
        self._site = site
        self._called = called
        self._parts = site.parts()
        self._fickle = {name: part for name, part in self._parts.items() if follows_mode(part)}
        self._tensors = site.own_tensors()
        self._floating = [t for t in self._tensors.values() if isinstance(t, nn.Parameter)]
        self._versions = [tensor._version for tensor in self._tensors.values()]
        self._contents = [content(tensor) for tensor in self._tensors.values()]
        self._left = LOOK_CLOSER_EVERY

    def problem(self) -> str | None:
        """What is different now; cheap enough for every call."""
        self._left -= 1
        if any(parameter.requires_grad for parameter in self._floating):
            names = (n for n, t in self._tensors.items() if t.requires_grad)
            return f"{joined(self._called, next(names))} is trainable now"
        if any(part.training for part in self._fickle.values()):
            return wrong_mode(self._fickle, self._called)
        if [tensor._version for tensor in self._tensors.values()] != self._versions:
            changed = self._changed_content()
            if changed is not None:
                return f"{joined(self._called, changed)} was changed"
        return self._look_closer() if self._left <= 0 else None

    def look_closer_next(self) -> None:
        """Let the next look be a close one."""
        self._left = 0

    def _look_closer(self) -> str | None:
        """What a call does not notice at once."""
        self._left = LOOK_CLOSER_EVERY
        now = self._site.own_tensors()
        if now.keys() != self._tensors.keys() or any(now[name] is not t for name, t in self._tensors.items()):
            return f"a layer of {joined(self._called)} was replaced"
        return watched_by_hooks(self._site, self._called)

    def _changed_content(self) -> str | None:
        """The name of a tensor with other values; the same ones may well have been written again."""
        for number, (name, tensor) in enumerate(self._tensors.items()):
            if tensor._version != self._versions[number]:
                if content(tensor) != self._contents[number]:
                    return name
                self._versions[number] = tensor._version
        return None


def content(tensor: torch.Tensor) -> tuple[int, int]:
    """Numbers that differ when a value does, for all that happens to weights."""
    if tensor.numel() == 0:
        return 0, 0
    flat = raw(tensor).reshape(-1)
    words = flat[: len(flat) // 4 * 4].view(torch.int32)
    return int(words.sum(dtype=torch.int64)), int(flat[-4:].sum()) + 31 * int((words[::7] ^ 0x5A5A).sum())
