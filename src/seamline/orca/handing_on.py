"""What becomes of a trained model elsewhere: other forms, a faster copy, a checkpoint for another program."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from seamline.core import checkpoint, place, registry
from seamline.core.archive import POSITION
from seamline.core.checkpoint import ModelDirectory
from seamline.core.errors import CheckpointError, SeamlineError
from seamline.core.framework import End, Framework, Recipe, State
from seamline.core.ledger import Ledger
from seamline.core.place import Place

Self = TypeVar("Self", bound="HandingOn")


def latest_checkpoint(model_dir: str | os.PathLike[str]) -> Place | None:
    """The newest complete checkpoint in a ``model_dir``, of its last run and that run's last ``fit``."""
    return ModelDirectory(model_dir).newest()


class HandingOn:
    """The part of an ``Estimator`` that gives away what was learned, and takes up what another program left."""

    framework: str
    history_: list[dict[str, float]]
    validations_: list[dict[str, float]]
    ledger_: Ledger
    state_: State
    _start_from: Place | None = None
    """A checkpoint that the next ``fit`` goes on from."""
    _end: End | None = None
    """Where the last ``fit`` ended."""

    if TYPE_CHECKING:

        @property
        def _library(self) -> Framework: ...

        def get_model(self) -> Any: ...

        def _trained_recipe(self) -> Recipe: ...

        def _current_state(self) -> State: ...

        def _learn(self, state: State) -> None: ...

    def to_onnx(self, path: str | os.PathLike[str], input_sample: Any = None) -> None:
        """Export the trained model as an ONNX file that takes any number of rows.

        ``input_sample`` is what the model is called with: an array or tensor, a tuple of arguments or a dict of them.
        By default it is the first row that the last ``fit`` read, or the ``example_input_array`` of a LightningModule.
        """
        sample = self._sample() if input_sample is None else input_sample
        self._library.to_onnx(self._trained_recipe(), sample, Path(path).absolute())

    def optimize(self, data: Any = None, **options: Any) -> Any:
        """Find the fastest way to serve the trained model on this machine; returns the report.

        ``data`` and ``options`` are those of ``InferenceOptimizer.optimize``; without any data, the first row that the
        last ``fit`` has read is the input. ``predict(..., model=report.best()[0])`` then answers with the best.
        """
        given = data is not None or options.get("validation_data") is not None
        if not given and options.get("input_sample") is None:
            options["input_sample"] = self._sample()
        return registry.inference(self.framework).optimize(self.get_model(), data, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save what was learned as safetensors and JSON; an earlier save at ``path`` is replaced."""
        if not hasattr(self, "state_"):
            raise SeamlineError("nothing to save yet; call fit or load first")
        records = {name: getattr(self, f"{name}_", []) for name in ("history", "validations")}
        self._write(path, partial(self._library.write, self._current_state()), {"kind": "model", **records})

    def load(self: Self, path: str | os.PathLike[str]) -> Self:
        """Take over weights and optimizer from a save or a checkpoint, and return ``self``."""
        with self._read(path) as (card, files):
            self._learn(self._library.read(files))
        self.history_, self.validations_ = card.get("history", []), card.get("validations", [])
        self._start_from = self._end = None
        return self

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save where the last ``fit`` ended, to the step: ``load_checkpoint`` and ``fit`` go on from there.

        ``save`` keeps the model for use; this keeps the run, also where ``max_steps`` has ended it within an epoch.
        """
        if self._end is None:
            raise SeamlineError("nothing to go on from; a checkpoint is of a fit, so call fit first")
        end = self._end
        state = self._current_state() if end.state is None else end.state

        def fill(folder: Path) -> None:
            self._library.write(state, folder)
            (folder / POSITION).write_text(json.dumps(end.position))

        self._write(path, fill, {"kind": "checkpoint"})

    def load_checkpoint(self: Self, path: str | os.PathLike[str]) -> Self:
        """Take over a run from a checkpoint, and return ``self``: the next ``fit`` goes on from its very step.

        That ``fit`` has to be told the same data, batch size, seed and ``epochs`` as the one that was left. ``load``
        takes over the model alone, and a ``fit`` after it begins an epoch.
        """
        with self._read(path) as (card, files):
            if card["kind"] != "checkpoint":
                raise CheckpointError(f"{path} is a saved model, not a checkpoint; use load to start from it")
            position = json.loads((files / POSITION).read_text())
            self._learn(self._library.read(files))
        self.history_ = position["history"]
        self.validations_ = position.get("validations", [])
        self.ledger_ = Ledger.from_dict(position["ledger"])
        self._start_from, self._end = place.at(path), End(position)
        return self

    def _write(self, path: str | os.PathLike[str], fill: Callable[[Path], None], card: dict[str, Any]) -> None:
        target = place.at(path)
        if not place.keeper(target).is_free(checkpoint.CARD):
            raise CheckpointError(f"{target} exists and was not saved by Seamline; choose another path")
        checkpoint.write_folder(target, fill, card={"framework": self.framework, **card})

    @contextlib.contextmanager
    def _read(self, path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, Any], Path]]:
        """The card of what was saved, and its files."""
        folder = place.at(path)
        card = checkpoint.read_card(folder)
        if card["framework"] != self.framework:
            raise CheckpointError(f"{folder} was saved by {card['framework']}, this estimator is of {self.framework}")
        with checkpoint.opened(folder) as files:
            yield card, files

    def _sample(self) -> Any:
        return None if self._end is None else self._end.sample
