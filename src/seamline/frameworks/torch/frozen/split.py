"""A module of which only the beginning is frozen, cut between its submodules."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import fx, nn

from seamline.frameworks.torch.frozen.call import Shape
from seamline.frameworks.torch.frozen.layers import follows_mode
from seamline.frameworks.torch.frozen.site import Tensors
from seamline.frameworks.torch.frozen.switches import switches
from seamline.frameworks.torch.frozen.trace import CannotTraceError, attribute, execute, last_uses, trace

_SHAPE_READS = {"size", "dim", "numel"}
_SHAPE_ATTRIBUTES = {"shape", "ndim", "dtype", "device"}


class Split:
    """The calls of ``forward`` that depend on no trainable parameter come first, the others after them.

    Both halves call the live modules, so the rest trains, drops out and switches modes as ever. What the code read
    while it was followed (modes, numbers, switches of the modules on the way) must still be so; ``ready`` says.
    """

    def __init__(self, module: nn.Module, call: Shape, inputs: Tensors) -> None:
        self.module = module
        self.call = call
        self.plain = module.forward
        graph = trace(module, call, _taken_whole)
        self._inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self._output = next(node for node in graph.nodes if node.op == "output")
        calls = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        learning = self._learning(calls)
        beginning = [node for node in calls if node not in learning]
        kept = self._kept(beginning, learning, inputs)
        self._beginning = [node for node in beginning if node not in learning]
        self._rest = [node for node in calls if node in learning]
        self._kept_nodes = kept
        self._frees = last_uses(self._beginning, [*kept, *self._inputs]), last_uses(self._rest, [self._output])
        followed = {name for node in calls if node.op == "call_module" for name in _parents(str(node.target))}
        self.inlined = {name: module.get_submodule(name) for name in sorted(followed)}
        self._any_mode = self._same_in_other_mode(graph)
        self._mode = module.training
        self._switches = self._read_switches()

    def _learning(self, calls: list[fx.Node]) -> set[fx.Node]:
        """The nodes that depend on something trainable, or that may differ from call to call by design."""
        learning: set[fx.Node] = set()
        for node in calls:
            own = False
            if node.op == "get_attr":
                own = bool(attribute(self.module, str(node.target)).requires_grad)
            elif node.op == "call_module":
                part = self.module.get_submodule(str(node.target))
                own = any(p.requires_grad for p in part.parameters())
                own = own or (follows_mode(part) and not any(True for _ in part.parameters()))
            if own or any(used in learning for used in node.all_input_nodes):
                learning.add(node)
        return learning

    def _kept(self, beginning: list[fx.Node], learning: set[fx.Node], inputs: Tensors) -> list[fx.Node]:
        """The values that go from one half to the other; numbers are computed again in the rest instead."""
        values: dict[fx.Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        with torch.no_grad():
            execute(self.module, beginning, values, {})
        while True:
            crossing = [
                node
                for node in beginning
                if node not in learning and any(user in learning or user is self._output for user in node.users)
            ]
            numbers = [node for node in crossing if not isinstance(values[node], torch.Tensor)]
            if not numbers:
                break
            learning.update(numbers)
        if not crossing:
            raise CannotTraceError("nothing that it computes first is frozen")
        self.example = [values[node] for node in crossing]
        memory = [tensor.untyped_storage().data_ptr() for tensor in self.example]
        if len(set(memory) - {tensor.untyped_storage().data_ptr() for tensor in inputs}) < len(memory):
            raise CannotTraceError("values that go from its frozen to its trainable part share their memory")
        return crossing

    def parts(self) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {}
        for node in self._beginning:
            if node.op == "call_module":
                name = str(node.target)
                inner = self.module.get_submodule(name).named_modules(prefix=name)
                found.update(inner)
        return found

    def own_tensors(self) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for name, part in self.parts().items():
            tensors = (*part.named_parameters(name, recurse=False), *part.named_buffers(name, recurse=False))
            found.update(tensors)
        for node in self._beginning:
            if node.op == "get_attr":
                found[str(node.target)] = attribute(self.module, str(node.target))
        return found

    def features(self, inputs: Tensors) -> list[torch.Tensor]:
        values: dict[fx.Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        execute(self.module, self._beginning, values, self._frees[0])
        return [values[node] for node in self._kept_nodes]

    def finish(self, features: Tensors, inputs: Tensors) -> Any:
        values: dict[fx.Node, Any] = dict(zip(self._inputs, inputs, strict=True))
        values.update(zip(self._kept_nodes, features, strict=True))
        execute(self.module, self._rest, values, self._frees[1])
        return _plain(fx.map_arg(self._output.args[0], lambda node: values[node]))

    def ready(self) -> bool:
        return (self._any_mode or self.module.training == self._mode) and self._read_switches() == self._switches

    def reads_input(self, number: int) -> bool:
        users = [user for user in self._inputs[number].users if user in set(self._rest) or user is self._output]
        return not all(_reads_shape(user) for user in users)

    def copied(self) -> nn.Module:
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        for node in (*self._inputs, *self._beginning):
            copies[node] = graph.node_copy(node, lambda used: copies[used])
        graph.output(tuple(copies[node] for node in self._kept_nodes))
        return copy.deepcopy(fx.GraphModule(self.module, graph))

    def _read_switches(self) -> list[Any]:
        return [value for part in (self.module, *self.inlined.values()) for value in switches(part)]

    def _same_in_other_mode(self, graph: fx.Graph) -> bool:
        """Whether the code on the way does the same in training and in evaluation."""
        followed = {part: part.training for part in (self.module, *self.inlined.values())}
        for part, mode in followed.items():
            part.training = not mode
        try:
            return str(trace(self.module, self.call, _taken_whole)) == str(graph)
        except CannotTraceError:
            return False
        finally:
            for part, mode in followed.items():
                part.training = mode


def _taken_whole(module: nn.Module) -> bool:
    """All frozen, all trainable or without parameters: only what is mixed has to be followed."""
    return len({parameter.requires_grad for parameter in module.parameters()}) < 2


def _parents(path: str) -> list[str]:
    names = path.split(".")
    return [".".join(names[:length]) for length in range(1, len(names))]


def _reads_shape(node: fx.Node) -> bool:
    if node.op == "call_method":
        return node.target in _SHAPE_READS
    return node.op == "call_function" and node.target is getattr and node.args[1] in _SHAPE_ATTRIBUTES


def _plain(value: Any) -> Any:
    """Lists and dicts as the user's code returns them, instead of the immutable ones of a graph."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, tuple):
        parts = [_plain(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
