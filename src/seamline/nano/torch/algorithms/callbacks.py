"""The algorithms that steer a Lightning run, as its callbacks; importing this needs Lightning."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.model_helpers import is_overridden

from seamline.core.tree import leaves
from seamline.nano.torch.algorithms.accumulation import accumulate_to
from seamline.nano.torch.algorithms.selective_backprop import SelectiveBackprop


class SelectiveBackpropCallback(Callback):
    """Selective backprop for a ``LightningModule``: ``training_step`` gets the hard part of each batch.

    ``loss_fn`` is what rows are judged by, with the module's ``forward``; the other arguments are those of
    ``SelectiveBackprop``. The module is as it was when the run is over, however it ends.
    """

    def __init__(self, loss_fn: Callable[..., Any], keep: float = 0.5, **options: Any) -> None:
        self._loss_fn = loss_fn
        self._selection = SelectiveBackprop(keep, **options)
        self._module: LightningModule | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        step = pl_module.training_step

        @functools.wraps(step)
        def training_step(batch: Any, *args: Any, **kwargs: Any) -> Any:
            chosen = self._selection.filter(pl_module, self._loss_fn, batch, progress=_progress(trainer))
            return step(chosen, *args, **kwargs)

        pl_module.__dict__["training_step"] = training_step
        self._module = pl_module

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore()

    def state_dict(self) -> dict[str, Any]:
        return self._selection.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._selection.load_state_dict(state_dict)

    def _restore(self) -> None:
        if self._module is not None:
            del self._module.__dict__["training_step"]
            self._module = None


class AccumulateTo(Callback):
    """Update the weights once for every ``target_batch`` rows, whatever the loader's batch is.

    The number of batches is read from the training loader and the number of devices, before schedules are made.
    """

    def __init__(self, target_batch: int, batch_size: int | None = None) -> None:
        self._target = target_batch
        self._batch_size = batch_size
        self._set = False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"accumulate_grad_batches={trainer.accumulate_grad_batches} is set already; AccumulateTo would set it: "
                "leave one of them out"
            )
        own_data = getattr(trainer, "datamodule", None) is None and is_overridden("train_dataloader", pl_module)
        if not (own_data and is_overridden("setup", pl_module)):  # else the loader is there only after its setup
            self._accumulate(trainer)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self._set:
            self._accumulate(trainer)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._restore(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore(trainer)

    def _restore(self, trainer: Trainer) -> None:
        if self._set:
            trainer.accumulate_grad_batches = 1
            self._set = False

    def _accumulate(self, trainer: Trainer) -> None:
        trainer.fit_loop.setup_data()
        per_step = self._loader_batch(trainer) * trainer.world_size
        trainer.accumulate_grad_batches = accumulate_to(self._target, per_step)
        self._set = True

    def _loader_batch(self, trainer: Trainer) -> int:
        if self._batch_size is not None:
            return self._batch_size
        sizes = [_batch_size(loader) for loader in leaves(trainer.train_dataloader)]
        if len(sizes) != 1 or sizes[0] is None:
            raise ValueError(
                f"cannot read one batch size from {trainer.train_dataloader!r}; give it: AccumulateTo(target_batch="
                f"{self._target}, batch_size=...)"
            )
        return sizes[0]


def _batch_size(loader: Any) -> int | None:
    sizes = (getattr(loader, "batch_size", None), getattr(getattr(loader, "batch_sampler", None), "batch_size", None))
    return next((size for size in sizes if isinstance(size, int)), None)


def _progress(trainer: Trainer) -> float:
    """The share of the run that is done; of one without an end, none."""
    if trainer.max_steps > 0:
        return trainer.global_step / trainer.max_steps
    epochs, batches = trainer.max_epochs or -1, trainer.num_training_batches
    if epochs < 0 or batches == float("inf"):
        return 0.0
    return trainer.fit_loop.total_batch_idx / (epochs * batches)
