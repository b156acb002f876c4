"""Which models are LightningModules, which of them can be trained here, and what they hold on to meanwhile."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from seamline.core.framework import Recipe
from seamline.core.shards import Unpaired
from seamline.frameworks.torch.lightning.log import LogBook
from seamline.frameworks.torch.lightning.trainer import StandIn

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")

_NOT_CALLED = (
    "backward",
    "clip_gradients",
    "configure_callbacks",
    "configure_gradient_clipping",
    "configure_sharded_model",
    "lr_scheduler_step",
    "on_after_backward",
    "on_after_batch_transfer",
    "on_before_backward",
    "on_before_batch_transfer",
    "on_before_optimizer_step",
    "on_before_zero_grad",
    "on_load_checkpoint",
    "on_save_checkpoint",
    "on_train_batch_end",
    "on_train_batch_start",
    "on_validation_batch_end",
    "on_validation_batch_start",
    "optimizer_step",
    "optimizer_zero_grad",
    "transfer_batch_to_device",
)
"""What a Trainer would call and this loop does not: a module that overrides one of them would learn something else."""

_ELSEWHERE = "which this loop has no place for; use seamline.nano.torch.Trainer, or give optimizer= and train_step="


def kinds() -> tuple[type, ...]:
    """The classes of LightningModule that this process knows; a module can only be of one of them."""
    return tuple(sys.modules[name].LightningModule for name in _PACKAGES if name in sys.modules)


def drives(recipe: Recipe, model: object) -> bool:
    """Whether a module says itself how it is trained, because nobody else does."""
    return isinstance(model, kinds()) and _says_nothing(recipe)


def may_drive(recipe: Recipe) -> bool:
    """The same before the model is made: a function that is no class may make anything."""
    if isinstance(recipe.model, type):
        return issubclass(recipe.model, kinds()) and _says_nothing(recipe)
    plain = isinstance(recipe.model, nn.Module) and not isinstance(recipe.model, kinds())
    return not plain and _says_nothing(recipe)


def _says_nothing(recipe: Recipe) -> bool:
    return recipe.optimizer is None and recipe.loss is None and recipe.train_step is None


def check(module: Any) -> None:
    """Refuse a module that would learn something else here than under Lightning's Trainer."""
    name = type(module).__name__
    if not module.automatic_optimization:
        raise ValueError(f"{name} optimises by hand (automatic_optimization=False), {_ELSEWHERE}")
    for step in ("training_step", "configure_optimizers"):
        if not overrides(module, step):
            raise ValueError(f"{name} has no {step}; write one, or give optimizer= and loss= for its forward")
    for hook in _NOT_CALLED:
        if overrides(module, hook):
            raise ValueError(f"{name} overrides {hook}, {_ELSEWHERE}")


def overrides(module: Any, name: str) -> bool:
    """Whether the user has written this method."""
    base = next(kind for kind in kinds() if isinstance(module, kind))
    return getattr(type(module), name, None) is not getattr(base, name, None)


def prepared(module: Any, trainer: StandIn) -> Any:
    """The module once it has heard that it is to be trained."""
    check(module)
    with attached(module, trainer, LogBook()):
        module.setup("fit")
    return module


@contextlib.contextmanager
def attached(module: Any, trainer: StandIn, book: LogBook) -> Iterator[None]:
    """Let the module log into a book and ask the stand-in; afterwards it is as it was."""
    before = module._trainer
    logging = [(each, vars(each).get("log"), vars(each).get("log_dict")) for each in _family(module)]
    module.trainer = trainer
    for each in _family(module):
        each.log, each.log_dict = book.log, book.log_dict
    try:
        yield
    finally:
        module.trainer = before
        for each in _family(module):
            del each.log, each.log_dict
        for each, log, log_dict in logging:
            if log is not None:
                each.log, each.log_dict = log, log_dict


def _family(module: Any) -> list[Any]:
    return [each for each in module.modules() if isinstance(each, kinds())]


def as_item(inputs: Any, targets: Any) -> Any:
    """A batch as a loader would have given it."""
    if isinstance(inputs, Unpaired):
        return tuple(inputs) if targets is None else (*inputs, targets)
    return inputs if targets is None else (inputs, targets)


def numbered(step: Callable[..., Any]) -> Callable[[Any, int], Any]:
    """A module's step as a function of a batch and its number, which it need not want."""
    parameters = inspect.signature(step).parameters
    if "dataloader_iter" in parameters:
        raise ValueError(f"{step.__name__} takes a dataloader_iter, and batches come from fit; let it take a batch")
    wants_number = "batch_idx" in parameters or len(parameters) > 1
    return lambda batch, number: step(batch, number) if wants_number else step(batch)
