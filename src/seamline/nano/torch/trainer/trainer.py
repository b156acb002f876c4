"""Lightning's ``Trainer`` with what helps on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import lightning.pytorch as pl
import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.plugins import Precision
from torch import nn

from seamline.nano.machine import tune_allocator
from seamline.nano.torch.inference import InferenceOptimizer
from seamline.nano.torch.trainer.compiled import CompiledModule
from seamline.nano.torch.trainer.strategy import LocalStrategy
from seamline.nano.torch.trainer.tuning import ChosenPrecision, Tuner, WarmUp, remember_features
from seamline.nano.torch.training.choice import Compile
from seamline.nano.torch.training.launching import check_processes, use_cores

WARM_UP_STEPS = 100


class Trainer(pl.Trainer):
    """A Lightning ``Trainer`` that takes every argument of Lightning's, and these.

    ``num_processes`` train together on this machine and learn what one would: each computes its part of the loader's
    batches. With ``scale_batch`` each takes whole batches instead, so that the batch is that many times as large;
    ``auto_lr`` then scales the learning rate with it and warms it up, unless the program has a schedule of its own.

    ``auto`` compares ways to compute the first steps (memory layout, bf16 where the processor has it, the compiler
    where the run is long enough) and keeps the fastest; one line says which and why. ``auto=False`` changes no number.
    ``compile=True`` asks for the compiler to be tried in any case, ``False`` never to. Where the first part of the
    model is frozen it runs in the fastest precision that keeps its answers, and with ``cache_frozen`` each sample's
    features are computed only once.
    """

    def __init__(
        self,
        *,
        num_processes: int = 1,
        auto: bool = True,
        compile: Compile = "auto",
        cache_frozen: bool | Literal["auto"] = "auto",
        scale_batch: bool = False,
        auto_lr: bool = True,
        callbacks: Sequence[Callback] | Callback | None = None,
        **lightning: Any,
    ) -> None:
        check_processes(num_processes)
        on_cpu = _on_cpu(lightning)
        if num_processes > 1:
            _check_free(lightning, num_processes)
            lightning["accelerator"] = "cpu"
            lightning["devices"] = num_processes
            lightning["use_distributed_sampler"] = False  # the strategy divides batches, exactly
            lightning["strategy"] = LocalStrategy(num_processes, whole_batches=scale_batch, auto=auto)
        tuner = Tuner(compile_too=compile, caching=cache_frozen)
        self._tuner = tuner if auto and on_cpu else None
        ours: list[Callback] = []
        if auto and on_cpu:
            tune_allocator()
            use_cores()
            ours.append(tuner)
            _choose_precision(lightning)
        if scale_batch and auto_lr and num_processes > 1:
            ours.append(WarmUp(num_processes, WARM_UP_STEPS))
        given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks or ())
        super().__init__(callbacks=[*ours, *given], **lightning)
        if auto and on_cpu and num_processes == 1:
            remember_features(self)

    def _fit_impl(self, model: LightningModule, *args: Any, **kwargs: Any) -> None:
        if self._tuner is None:
            super()._fit_impl(model, *args, **kwargs)
            return
        self._tuner.join(self)
        try:
            super()._fit_impl(model, *args, **kwargs)
        finally:
            self._tuner.undo(self, model)

    @staticmethod
    def compile(
        model: nn.Module,
        loss: Any = None,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: Any = None,
        metrics: Sequence[Any] | None = None,
    ) -> LightningModule:
        """A ``LightningModule`` from a plain module, its loss, optimizer and metrics."""
        return CompiledModule.of(model, loss, optimizer, scheduler, metrics)

    # What was trained goes on to be served

    trace = staticmethod(InferenceOptimizer.trace)
    quantize = staticmethod(InferenceOptimizer.quantize)
    save = staticmethod(InferenceOptimizer.save)
    load = staticmethod(InferenceOptimizer.load)


def _on_cpu(lightning: dict[str, Any]) -> bool:
    wanted = lightning.get("accelerator", "auto")
    return wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available())


def _check_free(lightning: dict[str, Any], processes: int) -> None:
    """``num_processes`` is a way to say accelerator, devices and strategy, so these cannot say something else."""
    for name in ("strategy", "devices", "accelerator"):
        value = lightning.get(name, "auto")
        if value not in ("auto", "cpu" if name == "accelerator" else "auto"):
            raise ValueError(f"num_processes={processes} and {name}={value!r} cannot be had together; leave one out")


def _choose_precision(lightning: dict[str, Any]) -> None:
    """Let bf16 be one of the choices, unless the user has chosen a precision."""
    plugins = lightning.get("plugins") or []
    plugins = list(plugins) if isinstance(plugins, (list, tuple)) else [plugins]
    if lightning.get("precision") is None and not any(isinstance(plugin, Precision) for plugin in plugins):
        lightning["plugins"] = [*plugins, ChosenPrecision()]
