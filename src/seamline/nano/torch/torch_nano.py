"""A training loop in plain PyTorch, as a class with ``train`` or as a decorated function, made faster."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeVar, cast

import torch
from torch import nn

from seamline.core.errors import SeamlineError
from seamline.nano.torch.training import session
from seamline.nano.torch.training.choice import Compile
from seamline.nano.torch.training.module import TunedModule
from seamline.nano.torch.training.session import Session, Wishes

Function = TypeVar("Function", bound=Callable[..., Any])


class TorchNano:
    """Subclass it, write the loop in ``train``, and let ``setup`` prepare what it works with.

    >>> class MyLoop(TorchNano):
    ...     def train(self, epochs):
    ...         model, optimizer, loader = self.setup(make_model(), make_optimizer, make_loader())
    ...         for x, y in loader:
    ...             optimizer.zero_grad()
    ...             self.backward(loss(model(x), y))
    ...             optimizer.step()
    >>> MyLoop(num_processes=2).train(epochs=3)

    With several processes ``train`` runs in each of them, every one with its part of each batch; they learn what one
    would. What ``train`` returns in the first of them is returned. ``precision`` and the rest are as in ``nano``.
    """

    _session: Session | None = None

    def __init__(
        self,
        num_processes: int = 1,
        *,
        auto: bool = True,
        precision: str | None = None,
        compile: Compile = "auto",
        scale_batch: bool = False,
        cache_frozen: bool | Literal["auto"] = "auto",
    ) -> None:
        self._wishes = Wishes(
            num_processes=num_processes,
            auto=auto,
            precision=precision,
            compile=compile,
            scale_batch=scale_batch,
            cache_frozen=cache_frozen,
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "train" in cls.__dict__:
            cls.train = _launched(cls.__dict__["train"])  # type: ignore[method-assign]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """The loop; to be written by the subclass."""
        raise NotImplementedError(f"{type(self).__name__} has no train method; write the loop there")

    @property
    def rank(self) -> int:
        """Which of the processes this is."""
        return self._prepared.peers.rank

    @property
    def num_processes(self) -> int:
        return self._wishes.num_processes

    def setup(self, model: nn.Module, optimizer: Any = None, *loaders: Any) -> Any:
        """The model, its optimizer (one or a list) and the loaders, ready for the loop."""
        prepared = self._prepared
        tuned = prepared.prepare(model)
        ready = [tuned, optimizer, *map(prepared.prepare, loaders)] if optimizer is not None else [tuned]
        return tuple(ready) if len(ready) > 1 else tuned

    def backward(self, loss: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    @property
    def _prepared(self) -> Session:
        if self._session is None:
            raise SeamlineError("setup and rank are there inside train, which starts the processes")
        return self._session


def _launched(train: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(train)
    def launched(self: TorchNano, *args: Any, **kwargs: Any) -> Any:
        if self._session is not None:  # called by a subclass's train, or in a process already
            return train(self, *args, **kwargs)

        def loop(prepared: Session) -> Any:
            self._session = prepared
            try:
                return train(self, *args, **kwargs)
            finally:
                self._session = None

        return session.run(self._wishes, loop)

    return launched


def nano(
    num_processes: int = 1,
    *,
    auto: bool = True,
    precision: str | None = None,
    compile: Compile = "auto",
    scale_batch: bool = False,
    cache_frozen: bool | Literal["auto"] = "auto",
) -> Callable[[Function], Function]:
    """Decorate a training function that takes its model, optimizer and loader as arguments.

    >>> @nano(num_processes=2)
    ... def train(model, optimizer, loader, loss, epochs): ...

    They may stand anywhere, by position or by name. Afterwards the model and the optimizer that were given have
    learned. ``auto`` finds the fastest way to compute the steps and says so; with ``auto=False`` no number changes.
    ``precision`` is ``"bf16"`` or ``"fp32"``; unless it is given it is chosen by ``auto``.
    """
    if callable(num_processes):
        raise TypeError("write @nano() with parentheses")
    wishes = Wishes(
        num_processes=num_processes,
        auto=auto,
        precision=precision,
        compile=compile,
        scale_batch=scale_batch,
        cache_frozen=cache_frozen,
    )

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def train(*args: Any, **kwargs: Any) -> Any:
            bound = inspect.signature(function).bind(*args, **kwargs)
            given = [*bound.args, *bound.kwargs.values()]
            if not any(isinstance(value, nn.Module) for value in given):
                raise TypeError(f"{function.__name__} was called without a model; @nano needs one among the arguments")

            def loop(prepared: Session) -> Any:
                models_first = {id(v): prepared.prepare(v) for v in given if isinstance(v, nn.Module)}
                positional = [models_first.get(id(v)) or prepared.prepare(v) for v in bound.args]
                named = {k: models_first.get(id(v)) or prepared.prepare(v) for k, v in bound.kwargs.items()}
                result = function(*positional, **named)
                returned = result.original if isinstance(result, TunedModule) else result
                return returned, session.learned(given) if wishes.num_processes > 1 else None

            result, states = session.run(wishes, loop)
            if states is not None:
                session.bring_home(given, states)
            return result

        return cast("Function", train)

    return decorate
