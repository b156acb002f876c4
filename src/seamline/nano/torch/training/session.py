"""One training loop that somebody else has written: its models, optimizers and loaders, made ready for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from seamline.frameworks.torch.trainee import on_cpu
from seamline.nano.machine import tune_allocator
from seamline.nano.torch.training.choice import Compile
from seamline.nano.torch.training.features import FeatureLoader, can_remember, some_frozen
from seamline.nano.torch.training.launching import check_processes, launch, use_cores
from seamline.nano.torch.training.loading import SharedLoader
from seamline.nano.torch.training.module import TunedModule
from seamline.nano.torch.training.peers import Alone, Peers

_PRECISIONS = {None: None, "fp32": False, "32": False, "bf16": True, "bf16-mixed": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the user asks of a loop's acceleration."""

    num_processes: int = 1
    auto: bool = True
    precision: str | None = None
    compile: Compile = "auto"
    scale_batch: bool = False
    cache_frozen: bool | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        check_processes(self.num_processes)
        if self.precision not in _PRECISIONS:
            raise ValueError(f"no precision {self.precision!r}; there are 'fp32' and 'bf16', or None to choose")


class Session:
    """What one process prepares for the loop."""

    def __init__(self, wishes: Wishes, peers: Peers) -> None:
        self._wishes = wishes
        self.peers = peers
        self._models: list[TunedModule] = []
        if wishes.auto:
            tune_allocator()
            use_cores()

    def prepare(self, value: Any) -> Any:
        """Models and loaders made ready; anything else as it is."""
        if isinstance(value, nn.Module) and not isinstance(value, TunedModule) and _learns(value):
            return self._model(value)
        if isinstance(value, DataLoader):
            return self._loader(value)
        return value

    def _model(self, model: nn.Module) -> TunedModule:
        wishes = self._wishes
        bf16 = _PRECISIONS[wishes.precision]
        tuned = TunedModule(
            model,
            self.peers,
            auto=wishes.auto,
            compile_too=wishes.compile,
            bf16=bf16 if wishes.auto else bool(bf16),
            caching=wishes.cache_frozen,
        )
        self._models.append(tuned)
        return tuned

    def _loader(self, loader: DataLoader[Any]) -> Any:
        frozen = self._wishes.auto and any(some_frozen(model.original) for model in self._models)
        if self.peers.size > 1:
            shared = SharedLoader(loader, self.peers, whole_batches=self._wishes.scale_batch)
            return _Followed(shared, shared.remember_features() if frozen else None, self._models)
        if frozen and can_remember(loader):
            features = FeatureLoader(loader)
            return _Followed(features, features, self._models)
        return loader

    def end(self) -> None:
        for model in self._models:
            model.release()


class _Followed:
    """A loader that tells the models which batch they are about to learn from."""

    def __init__(
        self, loader: SharedLoader | FeatureLoader, features: FeatureLoader | None, models: list[TunedModule]
    ) -> None:
        self._loader = loader
        self._features = features
        self._models = models

    def __iter__(self) -> Iterator[Any]:
        for item in self._loader:
            weight = self._loader.weight if isinstance(self._loader, SharedLoader) else 1.0
            for model in self._models:
                model.follow(item, weight, self._features)
            yield item

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)


def _learns(module: nn.Module) -> bool:
    """A model, rather than a loss function."""
    return any(parameter.requires_grad for parameter in module.parameters())


def run(wishes: Wishes, loop: Callable[[Session], Any]) -> Any:
    """What a loop returns that runs here, or in the first of several processes."""
    if wishes.num_processes == 1:
        return _run(loop, wishes, Alone())
    return launch(wishes.num_processes, _Task(loop, wishes))[0]


@dataclass(frozen=True, slots=True)
class _Task:
    loop: Callable[[Session], Any]
    wishes: Wishes

    def __call__(self, world: Any) -> Any:
        result = _run(self.loop, self.wishes, world)
        return on_cpu(result) if world.rank == 0 else None


def _run(loop: Callable[[Session], Any], wishes: Wishes, peers: Peers) -> Any:
    session = Session(wishes, peers)
    try:
        return loop(session)
    finally:
        session.end()


def learned(values: list[Any]) -> list[Any]:
    """What models and optimizers have learned, to be brought home."""
    return [on_cpu(value.state_dict()) for value in values if isinstance(value, (nn.Module, Optimizer))]


def bring_home(values: list[Any], states: list[Any]) -> None:
    holders = [value for value in values if isinstance(value, (nn.Module, Optimizer))]
    for holder, state in zip(holders, states, strict=True):
        holder.load_state_dict(state)
