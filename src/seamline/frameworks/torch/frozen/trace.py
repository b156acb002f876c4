"""The calls that a module's ``forward`` makes, as a graph that follows the live modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import fx, nn
from torch.utils import _pytree as pytree

from seamline.frameworks.torch.frozen.call import Shape
from seamline.frameworks.torch.frozen.snapshot import Snapshot


class CannotTraceError(Exception):
    """The module's code cannot be followed; the message says why."""


def trace(module: nn.Module, call: Shape, whole: Callable[[nn.Module], bool], *, flat: bool = False) -> fx.Graph:
    """Follow ``module.forward``, taking the submodules that are ``whole`` as they are.

    Code that leaves something behind in the module, or that makes tensors of its own, would do so once and never
    again in the graph, so it cannot be followed. ``flat`` makes the graph return a tuple of tensors.
    """
    tracer = _Tracer(call, whole, flat)
    try:
        with Snapshot(module) as before:
            graph = tracer.trace(module)
            for name, part in module.named_modules():
                attribute = before.changed(part)
                if attribute is not None and not attribute.startswith("_tensor_constant"):
                    raise CannotTraceError(f"{name or 'its forward'} sets {attribute!r} in every call")
    except CannotTraceError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise CannotTraceError(f"its forward cannot be followed ({first})") from error
    for node in graph.nodes:
        if node.op == "get_attr" and not _is_the_modules_own(module, str(node.target)):
            raise CannotTraceError("its forward uses tensors that are neither parameters nor buffers")
    return graph


class _Tracer(fx.Tracer):
    def __init__(self, call: Shape, whole: Callable[[nn.Module], bool], flat: bool) -> None:
        super().__init__()
        self._call = call
        self._whole = whole
        self._flat = flat

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self._whole(m)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> tuple[Any, list[Any]]:
        flat = self._flat
        proxies = [self.create_proxy("placeholder", f"input_{n}", (), {}) for n in range(self._call.count)]
        args, kwargs = self._call.rebuild(proxies)

        def forward(root: Any) -> Any:
            answer = root_fn(root, *args, **kwargs)
            return tuple(leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, fx.Proxy)) if flat else answer

        return forward, [self.root]


def execute(root: nn.Module, nodes: Iterable[fx.Node], values: dict[fx.Node, Any], last: dict[fx.Node, Any]) -> None:
    """Compute nodes in order with the modules that ``root`` has now; ``last`` says what each node uses up."""

    def value(node: fx.Node) -> Any:
        return values[node]

    for node in nodes:
        args, kwargs = fx.map_arg(node.args, value), fx.map_arg(node.kwargs, value)
        if node.op == "call_module":
            values[node] = root.get_submodule(str(node.target))(*args, **kwargs)
        elif node.op == "call_function":
            values[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        elif node.op == "call_method":
            values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        else:
            values[node] = attribute(root, str(node.target))
        for used in last.get(node, ()):
            del values[used]


def last_uses(nodes: Sequence[fx.Node], kept: Iterable[fx.Node]) -> dict[fx.Node, list[fx.Node]]:
    """For each node, the values that nobody needs after it."""
    last: dict[fx.Node, fx.Node] = {}
    for node in nodes:
        last.update(dict.fromkeys(node.all_input_nodes, node))
    needed = set(kept)
    uses: dict[fx.Node, list[fx.Node]] = {}
    for value, user in last.items():
        if value not in needed:
            uses.setdefault(user, []).append(value)
    return uses


def attribute(root: nn.Module, path: str) -> Any:
    value: Any = root
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _is_the_modules_own(root: nn.Module, path: str) -> bool:
    named = (*root.named_parameters(remove_duplicate=False), *root.named_buffers(remove_duplicate=False))
    return any(name == path for name, _ in named)
