"""Model, optimizer, loss and scheduler from a recipe: the instances in it, or what its functions make."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from seamline.core import creator, nursery
from seamline.core.framework import Recipe
from seamline.frameworks.torch import lightning, own_step
from seamline.frameworks.torch.ema import MovingAverage
from seamline.frameworks.torch.schedule import Schedule, Scheduler


@dataclass(frozen=True, slots=True)
class Built:
    """Everything that a training loop works with."""

    model: nn.Module
    optimizer: Optimizer
    loss: Any
    schedule: Schedule
    average: MovingAverage | None = None


def build(recipe: Recipe, device: torch.device, trainer: lightning.StandIn) -> Built:
    model = build_model(recipe)
    driven = lightning.drives(recipe, model)
    model = (lightning.prepared(model, trainer) if driven else model).to(device)
    if recipe.tuning.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if driven:
        optimizer, schedule = lightning.configured(model, trainer)
    else:
        optimizer = _optimizer(recipe, model)
        schedule = Schedule(_scheduler(recipe, optimizer), recipe.scheduler_every)
    average = None if recipe.tuning.ema is None else MovingAverage(model, recipe.tuning.ema)
    return Built(model, optimizer, build_loss(recipe, device), schedule, average)


def check(recipe: Recipe, *, to_train: bool) -> None:
    """Find, without calling any creator, what could not be built."""
    if not isinstance(recipe.model, nn.Module) and not callable(recipe.model):
        raise TypeError(
            f"model must be a torch.nn.Module or a function that makes one, but got {_described(recipe.model)}"
        )
    if not to_train:
        return
    if lightning.may_drive(recipe):
        if isinstance(recipe.model, nn.Module):
            lightning.check(recipe.model)
        _nothing_beside(recipe)
        return
    if recipe.train_step is not None:
        own_step.check(recipe.train_step)
    _complete(recipe)
    if isinstance(recipe.optimizer, torch.optim.LBFGS) or recipe.optimizer is torch.optim.LBFGS:
        raise ValueError(
            "LBFGS computes the loss several times in a step, which this loop does not do; use Adam or SGD"
        )
    if isinstance(recipe.optimizer, Optimizer):
        if not isinstance(recipe.model, nn.Module):
            raise TypeError(
                "the optimizer is an instance, but the model is a function that makes one, so they cannot belong "
                "together; give optimizer=lambda model: ... instead"
            )
        ours = {id(parameter) for parameter in recipe.model.parameters()}
        if not any(id(p) in ours for group in recipe.optimizer.param_groups for p in group["params"]):
            raise ValueError("the optimizer holds no parameter of this model; make it with model.parameters()")
    elif not callable(recipe.optimizer):
        raise TypeError(
            f"optimizer must be a torch.optim.Optimizer or a function of the model, not {_described(recipe.optimizer)}"
        )
    if recipe.loss is not None and not callable(recipe.loss):
        raise TypeError(f"loss must be a function of outputs and targets, but got {_described(recipe.loss)}")
    bound = getattr(recipe.scheduler, "optimizer", None)
    if bound is not None and bound is not recipe.optimizer:
        raise ValueError("the scheduler drives another optimizer; make it with the one that is given here")


def expect_optimizers() -> None:
    """Let workers be forked with what torch imports when an optimizer is first used; it takes as long as torch."""
    nursery.expect("torch._dynamo")


def _complete(recipe: Recipe) -> None:
    if recipe.optimizer is None or (recipe.loss is None and recipe.train_step is None):
        missing = "optimizer" if recipe.optimizer is None else "loss"
        raise ValueError(
            f"{missing} is missing; Estimator.from_torch(..., {missing}=...) is needed to fit, unless the model is a "
            "LightningModule with nothing beside it"
        )


def _nothing_beside(recipe: Recipe) -> None:
    for name in ("scheduler", "metrics"):
        if getattr(recipe, name) is not None:
            raise ValueError(
                f"{name}= is for models with optimizer= and loss=; a LightningModule says so itself, in "
                + ("configure_optimizers" if name == "scheduler" else "validation_step by self.log")
            )


def build_model(recipe: Recipe) -> nn.Module:
    model = recipe.model if isinstance(recipe.model, nn.Module) else creator.call(recipe.model, recipe.config)
    if not isinstance(model, nn.Module):
        raise TypeError(f"the model function returned {_described(model)}, not a torch.nn.Module")
    if lightning.drives(recipe, model):
        model.configure_model()  # type: ignore[operator]  # where such a module may make its layers
    return model


def build_loss(recipe: Recipe, device: torch.device) -> Any:
    """A module or function as it is; a class, or a function of nothing or of ``config``, makes the loss."""
    loss = recipe.loss
    makes_it = isinstance(loss, type) or (
        loss is not None
        and not isinstance(loss, nn.Module)
        and list(inspect.signature(loss).parameters) in ([], ["config"])
    )
    if makes_it:
        loss = creator.call(loss, recipe.config)
    return loss.to(device) if isinstance(loss, nn.Module) else loss


def _optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    _complete(recipe)  # a function that might have made a LightningModule has not
    made = recipe.optimizer
    if isinstance(made, Optimizer):
        return made
    function = made.func if isinstance(made, functools.partial) else made
    if isinstance(function, type) and issubclass(function, Optimizer):
        return made(model.parameters())  # type: ignore[no-any-return]
    optimizer = creator.call(made, model, recipe.config)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"the optimizer function returned {_described(optimizer)}, not a torch.optim.Optimizer")
    return optimizer


def _scheduler(recipe: Recipe, optimizer: Optimizer) -> Scheduler | None:
    made = recipe.scheduler
    if made is None or isinstance(made, (LRScheduler, ReduceLROnPlateau)):
        return made
    scheduler = creator.call(made, optimizer, recipe.config)
    if not isinstance(scheduler, (LRScheduler, ReduceLROnPlateau)):
        raise TypeError(f"the scheduler function returned {_described(scheduler)}, not a learning-rate scheduler")
    return scheduler


def _described(value: object) -> str:
    return f"{value!r} of type {type(value).__name__}"
