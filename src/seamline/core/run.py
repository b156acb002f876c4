"""One training run as one worker sees it: where it is, what was learned, who is told.

Every framework's loop drives a ``Run``; what happens around the steps (events, averages, checkpoints, resuming,
progress, the ledger) is here once.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from seamline.core import checkpoint, fault, pickling, place
from seamline.core.errors import CheckpointError, UnpicklableError
from seamline.core.events import Callback, Progress
from seamline.core.framework import Job, Outcome, State
from seamline.core.ledger import Ledger, Range
from seamline.core.mean import Mean
from seamline.core.place import Place
from seamline.core.saver import Saver
from seamline.core.shards import Batch
from seamline.core.world import World

POSITION = "run.json"
REPORT_EVERY_S = 0.1


class Trainee(Protocol):
    """What a run needs of the model in training; each framework has one."""

    framework: str

    @property
    def model(self) -> Any: ...

    def state(self) -> State: ...

    def snapshot(self) -> State:
        """A state that does not change with the model; good until the next one is asked for."""
        ...

    def load(self, state: State) -> None: ...

    def write(self, state: State, folder: Path) -> None: ...

    def read(self, folder: Path) -> State: ...


class Run:
    """Position, averages and events of a run; callbacks get it as their argument."""

    def __init__(self, job: Job, trainee: Trainee, world: World, steps_per_epoch: int | None) -> None:
        self.job = job
        self.world = world
        self.first_epoch = job.first_epoch
        self.epoch = job.first_epoch
        self.step = 0
        self.epoch_step = 0
        self.steps_per_epoch = steps_per_epoch
        self.loss: Any = float("nan")
        self.logs: dict[str, float] = {}
        self.history: list[dict[str, float]] = []
        self.ledger = Ledger()
        self._trainee = trainee
        self._callbacks = [c for c in job.callbacks if c.everywhere or world.rank == 0]
        self._step_callbacks = [c for c in self._callbacks if _overrides(c, "on_step_end")]
        self._steered = any(c.steers and _overrides(c, "on_step_end") for c in job.callbacks)
        self._settled = Mean()
        self._pending = Mean()
        self._ranges: list[Range] = []
        self._rows_read = 0
        self._epoch_began = 0.0
        self._in_step = False
        self._stop_wanted_now = False
        self._stop_wanted = False
        self._stop = False
        self._interrupted = False
        self._closed_early = False
        self._over = False
        self._saved: dict[str, Any] | None = None
        self._saver = Saver()
        self._reported = 0.0

    @property
    def model(self) -> Any:
        """The model in training, as the user made it."""
        return self._trainee.model

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def last_epoch(self) -> int:
        """Where the run ends, counted from where it began, also after it was resumed."""
        return self.first_epoch + self.job.epochs

    def stop(self) -> None:
        """End the run: after the step if a callback that ``steers`` says so in ``on_step_end``, else with the epoch."""
        if self._in_step and self._steered:
            self._stop_wanted_now = True
        else:
            self._stop_wanted = True

    def save(self, path: str | Path | Place) -> None:
        """Save the model as ``Estimator.save`` does; call it on one worker."""
        state = self._trainee.state()
        card = {"kind": "model", "framework": self._trainee.framework}
        checkpoint.write_folder(place.at(path), lambda folder: self._trainee.write(state, folder), card=card)

    # What a framework's loop calls, in this order.

    def epochs(self) -> Iterator[int]:
        """Begin, then yield each epoch that is still to be trained; its first step is ``epoch_step``."""
        if self.job.saving and self.job.saving.resume:
            self._resume(self.job.saving.resume)
        self._tell("on_fit_begin")
        while self.epoch < self.last_epoch and not self._over and not self._at_step_limit():
            self._epoch_began, self._rows_read = time.monotonic(), 0
            self._tell("on_epoch_begin")
            yield self.epoch
        self._save_checkpoint()
        self._hear_of_checkpoint(wait=True)
        self._tell("on_fit_end")
        self._strike("finish")

    def watched(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of an epoch, each at the beginning of its step."""
        for batch in batches:
            self._strike("step")
            yield batch

    def step_done(self, batch: Batch, loss: Mean) -> bool:
        """Enter one step into the books; says whether the epoch should go on."""
        self.loss = loss.total / loss.count if loss.count else 0.0
        self._pending = self._pending.plus(loss)
        self._rows_read += batch.batch_rows
        self._ranges.append((self.epoch, batch.start, batch.start + batch.rows))
        self.step += 1
        self.epoch_step += 1
        if self.job.heart is not None:
            self.job.heart.step = self.step
        self._in_step = True
        for callback in self._step_callbacks:
            callback.on_step_end(self)
        self._in_step = False
        if self._steered:
            self._stop = any(self.world.all_gather(self._stop_wanted_now))
        saving = self.job.saving
        self._hear_of_checkpoint()
        if saving and saving.policy.due_after_step(self.step):
            self._save_checkpoint()
        self._report_progress()
        self._interrupted = self._stop or self._at_step_limit()
        return not self._interrupted

    def summarise(self, logs: dict[str, float]) -> dict[str, float]:
        """The epoch's averages over all workers, with what validation found; the same on every worker."""
        if self._to_go_on_with():
            # Saved before the epoch is closed, so that a later run can go on in the middle of it.
            self._save_checkpoint()
        self._settle()
        self.logs = {"epoch": self.epoch + 1, "loss": self._settled.value, **logs}
        if self.job.deterministic:  # sums of few large parts: what the order of workers changes is far behind
            self.logs = {name: float(f"{value:.10g}") for name, value in self.logs.items()}
        return self.logs

    def epoch_done(self) -> None:
        """Close the epoch; whether to stop is decided together."""
        self.history.append(self.logs)
        self._tell("on_epoch_end")
        going_on = self._to_go_on_with()
        self._stop = any(self.world.all_gather(self._stop or self._stop_wanted))
        self._report(epoch_over=True)
        if going_on:
            self._over = self._closed_early = True
            return
        finished, self.epoch, self.epoch_step = self.epoch, self.epoch + 1, 0
        self._settled = Mean()
        self._over = self._stop
        if self.job.saving and self.job.saving.policy.due_after_epoch(finished):
            self._save_checkpoint()

    def outcome(self) -> Outcome:
        callbacks = [_travelling(c) if self.world.rank == 0 else {} for c in self.job.callbacks]
        state = self._trainee.state() if self.world.rank == 0 else {}
        return Outcome(state, self.history, self.first_epoch, self.ledger, callbacks)

    # The rest is nobody else's business.

    def _to_go_on_with(self) -> bool:
        """Whether ``max_steps`` ended the run in the middle of an epoch."""
        return self._interrupted and not self._stop and self.epoch_step != self.steps_per_epoch

    def _at_step_limit(self) -> bool:
        return self.job.max_steps is not None and self.step >= self.job.max_steps

    def _tell(self, event: str, *details: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(self, *details)

    def _settle(self) -> None:
        """Bring the books of all workers together; afterwards each has the same."""
        for ranges, pending in self.world.all_gather((self._ranges, self._pending.on_host())):
            self.ledger.add(ranges)
            self._settled = self._settled.plus(pending)
        self._ranges, self._pending = [], Mean()

    def _save_checkpoint(self) -> None:
        saving = self.job.saving
        if saving is None or self._saved == self._place() or self._closed_early:
            return
        self._settle()
        path = checkpoint.step_folder(saving.folder, self.step)
        if self.world.rank == 0:
            self._hear_of_checkpoint(wait=True)
            state, position, step = self._trainee.snapshot(), json.dumps(self._position()), self.step

            def fill(folder: Path) -> None:
                self._trainee.write(state, folder)
                (folder / POSITION).write_text(position)
                self._strike("checkpoint", step)

            card = {"kind": "checkpoint", "framework": self._trainee.framework}
            self._saver.save(path, fill, card, saving.policy.keep)
        else:
            self._strike("checkpoint")
        self._saved = self._place()

    def _hear_of_checkpoint(self, *, wait: bool = False) -> None:
        path = self._saver.written(wait=wait)
        if path is not None:
            self._tell("on_checkpoint", path)

    def _strike(self, phase: fault.Phase, step: int | None = None) -> None:
        if self.job.faults:
            fault.strike(self.job.faults, phase, self.rank, self.step if step is None else step, self.job.attempt)

    def _place(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "epoch_step": self.epoch_step, "step": self.step, "over": self._over}

    def _position(self) -> dict[str, Any]:
        return {
            **self._place(),
            "first_epoch": self.first_epoch,
            "loss": [self._settled.total, self._settled.count],
            "history": self.history,
            "ledger": self.ledger.to_dict(),
            "callbacks": [[type(callback).__name__, callback.state_dict()] for callback in self.job.callbacks],
            "signature": {**self.job.signature, "seed": self.job.seed},
        }

    def _resume(self, path: Place) -> None:
        with checkpoint.opened(path) as folder:
            position = json.loads((folder / POSITION).read_text())
            self._check_signature(path, position["signature"])
            self._trainee.load(self._trainee.read(folder))
        self.epoch, self.epoch_step = position["epoch"], position["epoch_step"]
        self.step, self._over = position["step"], position["over"]
        self._settled = Mean(*position["loss"])
        self.history = position["history"]
        self.ledger = Ledger.from_dict(position["ledger"])
        self._saved = self._place()
        self.first_epoch = position["first_epoch"]
        self._restore_callbacks(position["callbacks"])

    def _restore_callbacks(self, saved: list[tuple[str, dict[str, Any]]]) -> None:
        """Give each callback its own state: of its class, in order."""
        left = list(saved)
        for callback in self.job.callbacks:
            match = next((entry for entry in left if entry[0] == type(callback).__name__), None)
            if match is not None:
                left.remove(match)
                callback.load_state_dict(match[1])

    def _check_signature(self, path: Place, saved: dict[str, Any]) -> None:
        ours = {**self.job.signature, "seed": self.job.seed}
        for name, value in ours.items():
            if saved.get(name, value) != value:
                raise CheckpointError(
                    f"{path} was made with {name}={saved[name]}, this run has {name}={value}: "
                    "its place in the data means nothing here. Use the same value, or resume=None"
                )

    def _report_progress(self) -> None:
        if self.world.rank == 0 and time.monotonic() - self._reported >= REPORT_EVERY_S:
            self._report()

    def _report(self, *, epoch_over: bool = False) -> None:
        if self.world.rank != 0:
            return
        self._reported = time.monotonic()
        self.world.report(
            Progress(
                epoch=self.epoch,
                epochs=self.last_epoch,
                step=self.epoch_step,
                steps=self.steps_per_epoch,
                rows_per_s=self._rows_read / max(1e-9, time.monotonic() - self._epoch_began),
                loss=self._settled.plus(self._pending).value,
                logs=self.logs if epoch_over else {},
                epoch_over=epoch_over,
            )
        )


def _overrides(callback: Callback, hook: str) -> bool:
    return getattr(type(callback), hook) is not getattr(Callback, hook)


def _travelling(callback: Callback) -> dict[str, Any]:
    """The attributes that can go home; one that cannot must not cost the whole run."""
    attributes = {}
    for name, value in vars(callback).items():
        try:
            pickling.dumps(value, name)
        except UnpicklableError as error:
            warnings.warn(f"{type(callback).__name__}.{name} stays on its worker: {error}", stacklevel=2)
        else:
            attributes[name] = value
    return attributes
