"""What ``Trainer`` changes in a run that Lightning leads."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch import Trainer as LightningTrainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities import rank_zero_info

from seamline.frameworks.torch.frozen import FrozenPart
from seamline.nano.torch.training.choice import PLAIN, Choice, Compile, Form, Setting, candidates
from seamline.nano.torch.training.features import Caching, FeatureLoader, can_remember, find_frozen, some_frozen
from seamline.nano.torch.training.loading import SharedLoader


class ChosenPrecision(Precision):
    """bf16 in the steps for which it was chosen; the weights stay as they are."""

    bf16 = False

    def forward_context(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16) if self.bf16 else contextlib.nullcontext()


class Tuner(Callback):
    """Finds the fastest way to compute this model's steps while it trains."""

    def __init__(self, *, compile_too: Compile, caching: Caching) -> None:
        self._compile = compile_too
        self._caching: Caching = caching
        self._begun = False
        self._part: FrozenPart | None = None
        self._choice: Choice | None = None
        self._form: Form | None = None

    def on_train_start(self, trainer: LightningTrainer, module: LightningModule) -> None:
        self._begun = False

    def on_train_batch_start(
        self, trainer: LightningTrainer, module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._begun:
            self._begin(trainer, module, batch)
        if self._choice is None:
            return
        self._choice.next_step()
        if self._choice.chosen is not None:
            module.__dict__.pop("training_step", None)

    def _begin(self, trainer: LightningTrainer, module: LightningModule, batch: Any) -> None:
        """With the first batch: a frozen part chooses its way and the rest stays as it is; else steps are compared."""
        self._begun = True
        self._part = self._frozen(trainer, module, batch) if some_frozen(module) else None
        self._choice = self._compared(trainer, module) if self._part is None else None

    def _compared(self, trainer: LightningTrainer, module: LightningModule) -> Choice:
        precision = trainer.precision_plugin
        form = self._form = Form(module)

        def apply(setting: Setting) -> None:
            if isinstance(precision, ChosenPrecision):
                precision.bf16 = setting.bf16
            form.apply(setting)

        self._guard(module)
        return Choice(
            candidates(module, bf16=isinstance(precision, ChosenPrecision), processes=trainer.world_size),
            apply,
            steps_in_run=trainer.estimated_stepping_batches * trainer.accumulate_grad_batches,
            compile_too=self._compile,
            agree=trainer.strategy.broadcast,
            say=_say,
        )

    def _guard(self, module: LightningModule) -> None:
        """A step that raises in a setting that is only being tried is taken again as the program has it."""
        step = module.training_step

        @functools.wraps(step)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                return step(*args, **kwargs)
            except (RuntimeError, TypeError, ValueError) as error:
                if self._choice is None or not self._choice.give_up(error):
                    raise
                with torch.autocast("cpu", enabled=False):
                    return step(*args, **kwargs)

        module.__dict__["training_step"] = guarded

    def _frozen(self, trainer: LightningTrainer, module: LightningModule, batch: Any) -> FrozenPart | None:
        assert trainer.fit_loop._combined_loader is not None
        loader = trainer.fit_loop._combined_loader.flattened[0]
        features = loader.remember_features() if isinstance(loader, SharedLoader) else loader
        step = type(module).training_step

        def run(item: Any) -> Any:
            with trainer.precision_plugin.train_step_context(), _silent(module):
                return step(module, item, 0)

        return find_frozen(
            module,
            batch,
            run,
            features if isinstance(features, FeatureLoader) else None,
            _Ranks(trainer.global_rank, trainer.world_size),
            caching=self._caching if trainer.max_epochs != 1 else False,
            say=_say,
        )

    def on_train_batch_end(
        self, trainer: LightningTrainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._choice is not None:
            self._choice.step_done()
        if self._choice is None or self._choice.chosen is not None:
            self._leave(trainer)

    def _leave(self, trainer: LightningTrainer) -> None:
        """There is nothing more to do in each step, and even hooks that do nothing cost short steps a percent."""
        trainer.callbacks = [callback for callback in _callbacks(trainer) if callback is not self]  # type: ignore[attr-defined]

    def join(self, trainer: LightningTrainer) -> None:
        """Be there for the first steps of a run."""
        if self not in _callbacks(trainer):
            trainer.callbacks = [self, *_callbacks(trainer)]  # type: ignore[attr-defined]

    def undo(self, trainer: LightningTrainer, module: LightningModule) -> None:
        """The model goes back to its owner as it came, but for what it has learned."""
        if self._part is not None:
            self._part.remove()
            self._part = None
        module.__dict__.pop("training_step", None)
        if self._form is not None:
            self._form.apply(PLAIN)
            self._form = None
        if isinstance(trainer.precision_plugin, ChosenPrecision):
            trainer.precision_plugin.bf16 = False


def _callbacks(trainer: LightningTrainer) -> list[Callback]:
    return trainer.callbacks  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True, slots=True)
class _Ranks:
    rank: int
    size: int


@contextlib.contextmanager
def _silent(module: LightningModule) -> Iterator[None]:
    """Let a step that is only looked at log nothing."""
    before = module.__dict__.get("log")
    module.__dict__["log"] = lambda *args, **kwargs: None
    try:
        yield
    finally:
        del module.__dict__["log"]
        if before is not None:
            module.__dict__["log"] = before


def remember_features(trainer: LightningTrainer) -> None:
    """Let the loaders of a run in one process give what a frozen part remembers, should there be one."""
    plain = trainer.strategy.process_dataloader

    def process(dataloader: object) -> object:
        loader = plain(dataloader)
        wanted = trainer.training and some_frozen(trainer.lightning_module) and can_remember(loader)
        return FeatureLoader(loader) if wanted else loader  # type: ignore[arg-type]

    trainer.strategy.process_dataloader = process  # type: ignore[method-assign]


class WarmUp(Callback):
    """Raises the learning rate to ``factor`` times the user's over the first steps, for batches that much larger."""

    def __init__(self, factor: float, steps: int) -> None:
        self._factor = factor
        self._steps = steps
        self._base: list[list[float]] = []

    def on_train_start(self, trainer: LightningTrainer, module: LightningModule) -> None:
        if trainer.lr_scheduler_configs:
            _say("the learning rate follows the program's own schedule and is not scaled")
            return
        if not self._base:
            self._base = [[group["lr"] for group in optimizer.param_groups] for optimizer in trainer.optimizers]
        _say(f"the learning rate rises to {self._factor:g} times the given one over {self._steps} steps (auto_lr)")

    def on_train_batch_start(
        self, trainer: LightningTrainer, module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        now = 1 + (self._factor - 1) * min(1.0, (trainer.global_step + 1) / self._steps)
        for optimizer, rates in zip(trainer.optimizers, self._base, strict=False):
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * now

    def state_dict(self) -> dict[str, Any]:
        return {"base": self._base}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._base = state_dict["base"]


def _say(line: str) -> None:
    rank_zero_info(f"seamline: {line}")
