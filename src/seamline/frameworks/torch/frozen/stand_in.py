"""A tensor that is not there: it has the shape of the real one, carries the features, and loads itself if looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils import _pytree as pytree

Numbers = NDArray[np.int64]

_MOVES = {"to", "cpu", "contiguous", "detach", "float", "double", "half", "bfloat16", "pin_memory", "type"}
_READS = {"size", "dim", "__len__", "numel", "nelement", "is_floating_point", "is_complex", "element_size"}
_ATTRIBUTES = {"shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "is_cuda", "grad_fn", "grad"}


class StandIn(torch.Tensor):
    """In place of rows whose features are known already.

    Its shape, type and device are those of the real rows and need no reading. Any other use loads the real rows, so
    code that looks at them sees the truth; changing it in place makes it real for good.
    """

    _seamline_features: Sequence[torch.Tensor] | None
    _seamline_load: Callable[[], torch.Tensor]
    _seamline_real: torch.Tensor | None

    @staticmethod
    def of(like: torch.Size, dtype: torch.dtype, features: Sequence[torch.Tensor], load: Callable[[], Any]) -> StandIn:
        made: StandIn = torch.Tensor._make_wrapper_subclass(StandIn, like, dtype=dtype)
        made._seamline_features = features
        made._seamline_load = load
        made._seamline_real = None
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        owner = getattr(getattr(func, "__self__", None), "__name__", "")
        if name in _READS or (name == "__get__" and owner in _ATTRIBUTES):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        if name in _MOVES and isinstance(args[0], StandIn) and _stays(args[0], name, args[1:], kwargs):
            return args[0]
        if name == "__getitem__" and isinstance(args[0], StandIn) and _is_plain_slice(args[1]):
            return piece(args[0], args[1])
        changed = args[:1] if (name.endswith("_") and not name.endswith("__")) or name in _SETTERS else ()
        answer = func(*_real(args), **_real(kwargs))
        for stand_in in (*changed, kwargs.get("out")):
            if isinstance(stand_in, StandIn):
                stand_in._seamline_features = None
                return stand_in
        return answer

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """For callers that go around Python, such as scripts."""
        return func(*_real(args), **_real(kwargs or {}))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return real(self).__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return real(self).clone()


_SETTERS = {"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"}


def real(stand_in: StandIn) -> torch.Tensor:
    """The rows themselves, loaded when first asked for."""
    if stand_in._seamline_real is None:
        stand_in._seamline_real = stand_in._seamline_load()
    return stand_in._seamline_real


def carried(tensor: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """The features that a stand-in brings, unless somebody has changed what it stands for."""
    return tensor._seamline_features if isinstance(tensor, StandIn) else None


def piece(stand_in: StandIn, rows: slice) -> torch.Tensor:
    """Some of the rows, still not there."""
    features = stand_in._seamline_features
    if features is None:
        return real(stand_in)[rows]
    low, high, _ = rows.indices(len(stand_in))
    shape = torch.Size((max(0, high - low), *stand_in.shape[1:]))
    return StandIn.of(shape, stand_in.dtype, [each[rows] for each in features], lambda: real(stand_in)[rows])


def _real(tree: Any) -> Any:
    return pytree.tree_map(lambda leaf: real(leaf) if isinstance(leaf, StandIn) else leaf, tree)


def _is_plain_slice(index: Any) -> bool:
    return isinstance(index, slice) and index.step in (None, 1)


def _stays(tensor: StandIn, name: str, args: Any, kwargs: Any) -> bool:
    """Whether a conversion would give the same tensor back."""
    if tensor._seamline_features is None:
        return False
    if name == "detach" or name == "contiguous":
        return not args and not kwargs
    if kwargs.get("copy"):
        return False
    probe = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    options = {key: value for key, value in kwargs.items() if key not in ("non_blocking", "memory_format")}
    with torch._C.DisableTorchFunctionSubclass():
        return getattr(probe, name)(*args, **options) is probe
