"""Sums over logical workers whose bits do not depend on who computed which part."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from seamline.core.clock import gathered
from seamline.core.logical import share
from seamline.frameworks.torch.world import TorchWorld

_AT_A_TIME = 4 << 20
"""Numbers that travel in one message, so that the vectors of all workers are never here at once."""


@dataclass(slots=True)
class _Node:
    """The sum of the leaves from ``low`` on, ``size`` of them."""

    low: int
    size: int
    total: torch.Tensor


class CanonicalSum:
    """Adds one vector for each logical worker in the order of a balanced binary tree.

    A worker adds up whatever complete branches it holds; the few sums that are left go to everybody, and everybody
    finishes the tree alike. Addition of floats is not associative, so the order is all that matters.
    """

    def __init__(self, count: int, world: TorchWorld) -> None:
        self._count = count
        self._world = world
        self._nodes: list[_Node] = []
        self._owned = [_branches(share(count, worker, world.size)) for worker in range(world.size)]

    def add(self, number: int, leaf: torch.Tensor) -> None:
        """The vector of the next logical worker of this process; it is ours from now on."""
        _put(self._nodes, _Node(number, 1, leaf))

    def result(self) -> torch.Tensor:
        """The sum, the same bits on every worker; afterwards the next sum can begin."""
        nodes, self._nodes = self._nodes, []
        if self._world.size == 1:
            return nodes[0].total
        total = torch.empty_like(nodes[0].total)
        for low in range(0, len(total), _AT_A_TIME):
            part = slice(low, low + _AT_A_TIME)
            total[part] = self._exchanged([node.total[part] for node in nodes])
        return total

    def _exchanged(self, ours: list[torch.Tensor]) -> torch.Tensor:
        rounds = max(map(len, self._owned))
        nothing = torch.zeros_like(ours[0])
        received: dict[int, _Node] = {}
        for number in range(rounds):
            given = ours[number].contiguous() if number < len(ours) else nothing
            room = [torch.empty_like(given) for _ in range(self._world.size)]
            with self._world.clock.communicating(gathered(given.nbytes, self._world.size)):
                dist.all_gather(room, given)
            for branches, vector in zip(self._owned, room, strict=True):
                if number < len(branches):
                    received[branches[number].start] = _Node(branches[number].start, len(branches[number]), vector)
        nodes: list[_Node] = []
        for _, node in sorted(received.items()):
            _put(nodes, node)
        return nodes[0].total


def _put(nodes: list[_Node], node: _Node) -> None:
    """Append, and add up branches that have become complete."""
    nodes.append(node)
    while len(nodes) > 1 and nodes[-2].size == nodes[-1].size and nodes[-2].low % (2 * nodes[-1].size) == 0:
        right, left = nodes.pop(), nodes.pop()
        nodes.append(_Node(left.low, 2 * left.size, left.total.add_(right.total)))


def _branches(leaves: range) -> list[range]:
    """The largest complete branches that consist of these leaves alone."""
    found: list[range] = []
    low = leaves.start
    while low < leaves.stop:
        size = next(s for s in (2**n for n in itertools.count()) if low % (2 * s) or low + 2 * s > leaves.stop)
        found.append(range(low, low + size))
        low += size
    return found


def flattened(tensors: Iterable[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return torch.cat([tensor.detach().reshape(-1).to(dtype) for tensor in tensors])
