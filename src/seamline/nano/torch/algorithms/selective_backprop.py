"""Selective backprop: a quick look at every row, and gradients only of those that are still hard.

After Jiang et al., "Accelerating Deep Learning by Focusing on the Biggest Losers" (2019): rows are drawn by the rank of
their loss, so that hard rows are likely and easy ones are not forgotten. It pays where the backward pass costs more
than a forward pass without gradients, and it changes what is learned: compare the accuracy.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from seamline.core.tree import leaves, map_leaves

How = Literal["percentile", "top"]


def select(
    loss_per_row: Tensor, keep: float, generator: torch.Generator | None = None, how: How = "percentile"
) -> Tensor:
    """The numbers of the rows to train on, ascending: the share ``keep`` of them, at least one.

    ``"percentile"`` draws without replacement, a row whose loss ranks at ``p`` (0 to 1) with the weight
    ``p ** (1 / keep - 1)``; ``"top"`` takes the rows of largest loss.
    """
    _check_share("keep", keep)
    rows = len(loss_per_row)
    count = max(1, round(keep * rows))
    if count == rows:
        return torch.arange(rows, device=loss_per_row.device)
    order = torch.argsort(loss_per_row, stable=True)
    if how == "top":
        return order[rows - count :].sort().values
    percentile = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows
    drawn = torch.multinomial(percentile ** (1 / keep - 1), count, generator=generator)
    return order[drawn.to(order.device)].sort().values


class SelectiveBackprop:
    """Leave the easy rows of each batch out of training.

    ``keep`` is the share that stays. It is active between the shares ``start`` and ``end`` of the run, and every
    ``interrupt``-th batch stays whole (0: none), which keeps the model honest about easy rows. Draws depend on ``seed``
    alone and leave the global random numbers untouched.
    """

    def __init__(
        self,
        keep: float = 0.5,
        *,
        start: float = 0.0,
        end: float = 1.0,
        interrupt: int = 2,
        how: How = "percentile",
        seed: int = 0,
    ) -> None:
        _check_share("keep", keep)
        if not 0 <= start < end <= 1:
            raise ValueError(f"`0 <= start < end <= 1` must hold, but got (start={start}, end={end})")
        if interrupt < 0 or interrupt == 1:
            raise ValueError(f"interrupt={interrupt} would leave every batch whole; give 0 for none, or 2 and more")
        if how not in ("percentile", "top"):
            raise ValueError(f"no way to select named {how!r}; there are percentile, top")
        self.keep = keep
        self.start = start
        self.end = end
        self.interrupt = interrupt
        self.how = how
        self._generator = torch.Generator().manual_seed(seed)
        self._batches = 0

    def filter(self, model: nn.Module, loss_fn: Callable[..., Any], batch: Any, progress: float | None = None) -> Any:
        """The batch, or the part of it to train on; of the same form.

        A batch is ``(inputs, targets)``: inputs are one tensor, or a tuple or dict of arguments of the model.
        ``progress`` is the share of the run that is done; ``start`` and ``end`` need it.
        """
        if not self._is_active(progress):
            return batch
        self._batches += 1
        if self.interrupt and self._batches % self.interrupt == 0:
            return batch
        inputs, targets = _inputs_and_targets(batch)
        with torch.no_grad(), _judging(model):
            losses = row_losses(loss_fn, _called(model, inputs), targets)
        chosen = select(losses, self.keep, self._generator, self.how)
        rows = len(losses)
        return map_leaves(lambda leaf: _rows(leaf, chosen, rows), batch)

    def state_dict(self) -> dict[str, Any]:
        """Where the draws stand, for a checkpoint."""
        return {"batches": self._batches, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._batches = state["batches"]
        self._generator.set_state(state["generator"])

    def _is_active(self, progress: float | None) -> bool:
        if progress is None:
            if (self.start, self.end) != (0.0, 1.0):
                raise ValueError("start and end are shares of the run: pass progress=step / steps to filter()")
            return True
        return self.start <= progress < self.end


def row_losses(loss_fn: Callable[..., Any], outputs: Any, targets: Any) -> Tensor:
    """One loss for each row: by ``reduction="none"`` where the loss knows it, as it comes otherwise."""
    rows = len(next(leaves(targets)))
    if isinstance(loss_fn, nn.Module) and hasattr(loss_fn, "reduction"):
        by_row: Any = copy.copy(loss_fn)
        by_row.reduction = "none"
        losses = by_row(outputs, targets)
    elif _takes_reduction(loss_fn):
        losses = loss_fn(outputs, targets, reduction="none")
    else:
        losses = loss_fn(outputs, targets)
    if not isinstance(losses, Tensor) or losses.ndim == 0 or len(losses) != rows:
        found = tuple(losses.shape) if isinstance(losses, Tensor) else type(losses).__name__
        raise ValueError(
            f"the loss gave {found} for {rows} rows; selective backprop needs one loss for each row: "
            'use a loss that takes reduction="none", or a function that returns the losses without averaging'
        )
    return losses.detach().float().reshape(rows, -1).mean(dim=1)


def _takes_reduction(loss_fn: Callable[..., Any]) -> bool:
    try:
        return "reduction" in inspect.signature(loss_fn).parameters
    except (TypeError, ValueError):  # some built-in functions have no signature to read
        return False


def _inputs_and_targets(batch: Any) -> tuple[Any, Any]:
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    raise TypeError(
        f"selective backprop needs batches of the form (inputs, targets), but got {type(batch).__name__}"
        + (f" of {len(batch)}" if isinstance(batch, (tuple, list)) else "")
    )


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


@contextlib.contextmanager
def _judging(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, so that a look changes no running average and draws no dropout; then each module as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _rows(leaf: Any, chosen: Tensor, rows: int) -> Any:
    """What is one for each row is selected; settings that travel with a batch stay."""
    if isinstance(leaf, Tensor) and leaf.ndim and len(leaf) == rows:
        return leaf[chosen.to(leaf.device)]
    return leaf


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ValueError(f"`0 < {name} <= 1` must hold, but got {name}={value}")
