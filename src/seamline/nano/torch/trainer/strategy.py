"""Lightning's data parallelism on processes that Seamline starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.overrides.distributed import _sync_module_states
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers.launcher import _Launcher
from lightning.pytorch.trainer.states import TrainerFn

from seamline.core import pickling, tree
from seamline.core.errors import UnpicklableError
from seamline.frameworks.torch.replica import reached
from seamline.frameworks.torch.trainee import on_cpu
from seamline.frameworks.torch.world import TorchWorld
from seamline.nano.torch.training.choice import Form, Setting
from seamline.nano.torch.training.features import some_frozen
from seamline.nano.torch.training.launching import launch
from seamline.nano.torch.training.loading import SharedLoader


class LocalStrategy(DDPStrategy):
    """Data parallel training that learns what one process would: the loader's batch is divided, not multiplied.

    With ``whole_batches`` each process takes batches of its own instead, as Lightning does.
    """

    strategy_name = "seamline"

    def __init__(self, processes: int, *, whole_batches: bool = False, auto: bool = False, **options: Any) -> None:
        devices = [torch.device("cpu")] * processes
        super().__init__(parallel_devices=devices, cluster_environment=LightningEnvironment(), **options)
        self._processes = processes
        self._whole_batches = whole_batches
        self._auto = auto
        self._loaders: list[SharedLoader] = []
        self._pass = self._first_batch = 0
        self._exchanging = False

    @property
    def loaders(self) -> list[SharedLoader]:
        """Those of the run at hand, in the order in which Lightning has asked for them."""
        return self._loaders

    def _configure_launcher(self) -> None:
        self._launcher = LocalLauncher(self._processes)

    def setup_distributed(self) -> None:
        """The processes are connected already; and random numbers go on, as they do in one process."""
        self.set_world_ranks()
        self._process_group_backend = "gloo"

    def process_dataloader(self, dataloader: object) -> object:
        assert self.lightning_module is not None
        training = self.lightning_module.trainer.training
        shared = SharedLoader(
            dataloader, _Here(self), whole_batches=self._whole_batches and training, skip_empty=not training
        )
        if training and self._auto and some_frozen(self.lightning_module):
            shared.remember_features()
        self._loaders.append(shared)
        return shared

    def setup(self, trainer: LightningTrainer) -> None:
        super().setup(trainer)
        assert self.lightning_module is not None
        _log_for_all(self.lightning_module)

    def configure_ddp(self) -> None:
        """Begin with equal weights; how gradients are exchanged is settled by the first step."""
        assert self.lightning_module is not None
        if self._auto:
            Form(self.lightning_module).apply(Setting(channels_last=True))
        _sync_module_states(self.lightning_module)
        self._exchanging = False

    def backward(self, closure_loss: torch.Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Let each row count as it would in one process, however unevenly a batch was divided."""
        weight = self._weight()
        loss = closure_loss if weight == 1.0 else closure_loss * weight
        if self._exchanging:
            super().backward(loss, optimizer, *args, **kwargs)
        else:
            self._first_backward(loss, optimizer, *args, **kwargs)
        return closure_loss.detach()

    def _first_backward(self, loss: torch.Tensor, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """Find out whether the loss reaches every parameter: not looking fails if it does not, looking costs time."""
        module = self.lightning_module
        assert module is not None
        trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        unused = torch.tensor(float(not module.automatic_optimization or len(reached([loss])) < len(trainable)))
        torch.distributed.all_reduce(unused)
        super().backward(loss, optimizer, *args, **kwargs)
        for parameter in trainable:
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.distributed.all_reduce(gradient)
            if parameter.grad is not None:
                gradient /= self.world_size
        self._ddp_kwargs = {**self._ddp_kwargs, "init_sync": False, "find_unused_parameters": bool(unused)}
        self.model = self._setup_model(module)
        self._exchanging = True

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """As Lightning does; but the mean of whole numbers, such as counted rows, need not be one."""
        counted = isinstance(tensor, torch.Tensor) and not tensor.is_floating_point()
        return super().reduce(tensor.double() if counted else tensor, group, reduce_op)

    def _weight(self) -> float:
        """Of the batch at hand; Lightning may have asked the loader for the next one already."""
        assert self.lightning_module is not None
        loop = self.lightning_module.trainer.fit_loop
        assert loop._combined_loader is not None
        loader: SharedLoader = loop._combined_loader.flattened[0]
        if loader.passes != self._pass:
            self._pass, self._first_batch = loader.passes, loop.epoch_loop.batch_idx
        return loader.weight_of(loop.epoch_loop.batch_idx - self._first_batch)

    def teardown(self) -> None:
        super().teardown()
        if self.lightning_module is not None:
            self.lightning_module.__dict__.pop("log", None)


class _Here:
    """The processes of a strategy, as a loader sees them; ranks are known only once they run."""

    def __init__(self, strategy: LocalStrategy) -> None:
        self._strategy = strategy

    @property
    def rank(self) -> int:
        return int(self._strategy.global_rank)

    @property
    def size(self) -> int:
        return int(self._strategy.world_size)


def _log_for_all(module: LightningModule) -> None:
    """Let ``self.log`` mean over all processes: one process has seen only a part of each batch."""

    @functools.wraps(module.log)
    def log(name: str, value: Any, *args: Any, **kwargs: Any) -> None:
        LightningModule.log(module, name, value, *args, **{**kwargs, "sync_dist": True})

    module.__dict__["log"] = log


class LocalLauncher(_Launcher):
    """Starts the processes, and brings home what the first one has learned."""

    def __init__(self, processes: int) -> None:
        self._processes = processes

    @property
    def is_interactive_compatible(self) -> bool:
        return True

    def launch(
        self, function: Callable[..., Any], *args: Any, trainer: LightningTrainer | None = None, **kwargs: Any
    ) -> Any:
        callbacks = _callbacks(trainer)
        answers = launch(self._processes, functools.partial(_work, function, args, kwargs, trainer, callbacks))
        if trainer is None:
            return answers[0][0]
        _bring_home(trainer, callbacks, answers[0][1])
        if trainer.state.fn == TrainerFn.PREDICTING:
            return _put_together([results for results, _ in answers], [home["rows"] for _, home in answers])
        return answers[0][0]

    def kill(self, signum: Any) -> None:
        """Processes never outlive the call that started them."""


def _work(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    trainer: LightningTrainer | None,
    callbacks: list[Callback],
    world: TorchWorld,
) -> tuple[Any, dict[str, Any]]:
    """What every process does; the first one tells what became of the trainer and of these callbacks of it."""
    results = on_cpu(function(*args, **kwargs))
    if trainer is None:
        return results, {}
    strategy = trainer.strategy
    assert isinstance(strategy, LocalStrategy)
    home: dict[str, Any] = {"rows": [loader.rows for loader in strategy.loaders]}
    state = trainer.lightning_module.state_dict()
    if world.rank == 0:
        home["state"] = trainer.state
        home["model"] = on_cpu(state)
        home["metrics"] = [on_cpu(dict(metrics)) for metrics in _metrics(trainer)]
        home["callbacks"] = [_state_of(callback) for callback in callbacks]
        home["loop"] = trainer.fit_loop.state_dict()
        home["stopped"] = trainer.should_stop
    return results, home


def _callbacks(trainer: LightningTrainer | None) -> list[Callback]:
    """Those of the program; in the processes the model may add its own."""
    return list(trainer.callbacks) if trainer is not None else []  # type: ignore[attr-defined]


def _metrics(trainer: LightningTrainer) -> list[dict[str, Any]]:
    return [trainer.callback_metrics, trainer.logged_metrics]


def _state_of(callback: Callback) -> tuple[Any, dict[str, Any]]:
    """What a callback has learned: its state, and for one of the user's the attributes that can travel."""
    theirs = not type(callback).__module__.startswith("lightning.")
    attributes = {name: value for name, value in vars(callback).items() if theirs and _travels(value)}
    return on_cpu(callback.state_dict()), on_cpu(attributes)


def _travels(value: object) -> bool:
    if isinstance(value, (LightningTrainer, torch.nn.Module)):
        return False
    try:
        pickling.dumps(value, "an attribute")
    except UnpicklableError:
        return False
    return True


def _bring_home(trainer: LightningTrainer, callbacks: list[Callback], home: dict[str, Any]) -> None:
    trainer.state = home["state"]
    trainer.lightning_module.load_state_dict(home["model"], strict=False)
    for here, there in zip(_metrics(trainer), home["metrics"], strict=True):
        here.update(there)
    for callback, (state, attributes) in zip(callbacks, home["callbacks"], strict=True):
        if state:
            callback.load_state_dict(state)
        vars(callback).update(attributes)
    if trainer.state.fn == TrainerFn.FITTING:
        trainer.fit_loop.load_state_dict(home["loop"])
        trainer.should_stop = home["stopped"]


def _put_together(parts: list[Any], rows: list[list[list[int]]]) -> Any:
    """Predictions of whole batches from those of their parts."""
    loaders = len(rows[0])
    if loaders > 1:
        return [_batches([part[n] for part in parts], [count[n] for count in rows]) for n in range(loaders)]
    return _batches(parts, [count[0] for count in rows])


def _batches(parts: list[list[Any]], rows: list[list[int]]) -> list[Any]:
    left = [iter(part) for part in parts]
    together = []
    for counts in zip(*rows, strict=True):
        mine = [next(part) for part, count in zip(left, counts, strict=True) if count]
        together.append(tree.zip_leaves(_joined, mine))
    return together


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], torch.Tensor) and values[0].ndim:
        return torch.cat(values)
    return values[0] if len(values) == 1 else values
