"""One training run as one worker sees it: where it is, what was learned, who is told.

Every framework's loop drives a ``Run``; what happens around the steps (events, averages, checkpoints, resuming,
progress, the ledger) is here once.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from seamline.core import checkpoint, fault, place, rows, tree
from seamline.core.archive import Archive
from seamline.core.audience import Audience
from seamline.core.books import Account, Books
from seamline.core.clock import Clock
from seamline.core.events import Progress, Saved
from seamline.core.framework import End, Job, Outcome, State
from seamline.core.ledger import Ledger
from seamline.core.logical import LogicalBatch
from seamline.core.mean import Mean
from seamline.core.place import Place
from seamline.core.profile import EpochTimes, pace_of, stragglers
from seamline.core.shards import Batch
from seamline.core.trainee import Trainee
from seamline.core.world import World

REPORT_EVERY_S = 0.1
PACES_PER_S = 8
"""Reports of all workers together on how they get on; each speaks at most twice a second."""
TIMES_KEPT = 500
"""Entries of ``Run.times`` that a checkpoint holds, so that it stays small in a long run of many workers."""
_ENDING = ("_closing_again", "_closed_early", "_interrupted", "_left", "_stop")
"""What a worker knows of the end of an epoch or of the run, and a checkpoint does not."""


class Run:
    """Position, averages and events of a run; callbacks get it as their argument."""

    def __init__(
        self, job: Job, trainee: Trainee, world: World, steps_per_epoch: int | None, clock: Clock | None = None
    ) -> None:
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
        self.validations: list[dict[str, float]] = []
        self.times: list[EpochTimes] = []
        self._clock = Clock()
        self._validate: Callable[[], dict[str, float]] = dict
        self._validated: int | None = None
        self._scores: tuple[int, dict[str, float]] | None = None
        self._trainee = trainee
        self._archive = Archive(job, trainee)
        self._audience = Audience(job.callbacks, world.rank)
        self._account = Account()
        self._rows_read = 0
        self._epoch_began = 0.0
        self._can_stop_now = False
        self._stop_wanted_now = False
        self._stop_wanted = False
        self._stop = False
        self._interrupted = False
        self._closed_early = False
        self._over = False
        self._begun = self._ended = self._recovered = False
        self._epoch_told: int | None = None
        self._open: Literal["step", "validation", "epoch"] | None = None
        self._closing_again = False
        self._saved: dict[str, Any] | None = None
        self._left: tuple[dict[str, Any], State] | None = None
        self._sample: Any = None
        self._reported = 0.0

    @property
    def model(self) -> Any:
        """The model in training, as the user made it."""
        return self._trainee.model

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def ledger(self) -> Ledger:
        return self._account.ledger

    @property
    def last_epoch(self) -> int:
        """Where the run ends, counted from where it began, also after it was resumed."""
        return self.first_epoch + self.job.epochs

    def pace(self) -> dict[str, float]:
        """The rows a second of the epoch that has ended, and the shares of the time of all workers."""
        return pace_of(self._last_times())

    def stop(self) -> None:
        """End the run: with the epoch, but at once if a callback says so in ``on_validation``, or steers by steps."""
        if self._can_stop_now:
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
        if not self._begun:
            self._begin()
        while self._closing_again or (self.epoch < self.last_epoch and not self._over and not self._at_step_limit()):
            self._epoch_began, self._rows_read = time.monotonic(), 0
            if self._epoch_told != self.epoch:
                self._tell("on_epoch_begin")
                self._epoch_told = self.epoch
            yield self.epoch
        self._save_checkpoint()
        self._hear_of_checkpoint(wait=True)
        if not self._ended:
            self._tell("on_fit_end")
            self._ended = True
        self._strike("finish")

    def sampled(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The same batches; the first row of the first is kept for those who want to call the model later."""
        for batch in batches:
            if self._sample is None and self.rank == 0:
                self._sample = _first_row(batch)
            yield batch

    def watched(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of an epoch, each at the beginning of its step."""
        if self._closing_again:
            self._closing_again = False
            return
        if self.epoch_step and self._validation_due():  # a peer was lost before it was complete
            self._validate_within_the_epoch()
            self._interrupted = self._stop
        for batch in () if self._interrupted else self._clock.fetched(batches):
            self._strike("step")
            if self.world.size > 1:
                self._trainee.mark()
                self._open = "step"
            yield batch

    def step_done(
        self, batch: Batch, loss: Mean, books: Books | None = None, numbers: Iterable[Mapping[str, Mean]] = ()
    ) -> bool:
        """Enter one step, of all workers where there are several; says whether the epoch should go on.

        ``numbers`` are what else each has to report.
        """
        self._clock.step_done(batch.rows)
        self.loss = loss.total / loss.count if loss.count else 0.0
        self._account.enter(self.epoch, batch, loss, books, numbers)
        self._rows_read += batch.batch_rows
        self._open = None
        self.step += 1
        self.epoch_step += 1
        if self.job.heart is not None:
            self.job.heart.step = self.step
        self._can_stop_now = self._audience.steers_by_step
        self._tell("on_step_end")
        self._can_stop_now = False
        if self._audience.steers_by_step:
            self._stop = any(self.world.all_gather(self._stop_wanted_now))
        if self._validation_due():
            self._validate_within_the_epoch()
        self._hear_of_checkpoint()
        if self._archive.due_after_step(self.step):
            self._save_checkpoint()
        self._report_progress()
        self._interrupted = self._stop or self._at_step_limit()
        return not self._interrupted

    def close_epoch(self) -> None:
        """The epoch's steps are done; what follows counts when all workers have come to the end of it."""
        self._trainee.mark(epoch=True)
        self._begin_to_agree("epoch")

    def validation(self) -> dict[str, float]:
        """What validation finds after this step; looked for once."""
        if self._scores is None or self._scores[0] != self.step:
            self._scores = self.step, self._validate()
        return self._scores[1]

    def summarise(self, logs: dict[str, float]) -> dict[str, float]:
        """The epoch's averages over all workers, with what validation found; the same on every worker."""
        if self._to_go_on_with():
            # Saved before the epoch is closed, so that a later run can go on in the middle of it.
            self._save_checkpoint()
        self._account.settle()
        self.times += self.world.all_gather(self._clock.close(self.rank, self.epoch + 1, self.step))
        if self._to_go_on_with():
            self._left = copy.deepcopy((self._position(), self._trainee.state()))
        self.logs = self._rounded({"epoch": self.epoch + 1, **self._account.averages(), **logs})
        if not self.validations or self.validations[-1]["step"] != self.step:
            self._note_validation(self.validation())
        return self.logs

    def epoch_done(self) -> None:
        """Close the epoch; whether to stop is decided together."""
        self.history.append(self.logs)
        self._tell("on_epoch_end")
        going_on = self._to_go_on_with()
        self._agree(stop=self._stop or self._stop_wanted)
        self._report(epoch_over=True)
        if going_on:
            self._over = self._closed_early = True
            return
        finished, self.epoch, self.epoch_step = self.epoch, self.epoch + 1, 0
        self._account.begin_epoch()
        self._over = self._stop
        if self._archive.due_after_epoch(finished):
            self._save_checkpoint()

    def outcome(self) -> Outcome:
        """What goes home: all of it from the first worker, as the others have the same."""
        if self.rank != 0:
            return Outcome({}, self.history, self.first_epoch, self.ledger, [])
        position, left = self._left or (self._position(), None)
        return Outcome(
            self._trainee.state(),
            self.history,
            self.first_epoch,
            self.ledger,
            self._audience.attributes(),
            self.validations,
            End(position, left, self._sample),
            self.times,
        )

    # What it calls among new peers, when some were lost and replaced.

    def meet(self, world: World, validate: Callable[[], dict[str, float]], clock: Clock) -> None:
        """Go on among these peers; what they have not agreed to any more is undone."""
        self.world, self._validate, self._clock, self._scores = world, validate, clock, None
        if self._open in ("step", "epoch"):
            self._trainee.take_back()
        if self._open in ("validation", "epoch"):
            self.validations = [each for each in self.validations if each["step"] < self.step]
            self.history = [logs for logs in self.history if logs["epoch"] <= self.epoch]
            self.times = [times for times in self.times if times.epoch <= self.epoch]
            self._audience.take_back()
        self._closing_again = self._closing_again or self._open == "epoch"
        self._open = None

    @property
    def reached(self) -> tuple[int, int, bool, bool] | None:
        """How far this worker has come, larger if further; nothing if it has not begun."""
        return (self.step, self.epoch, self._closing_again, self._validated == self.step) if self._begun else None

    def hand_over(self) -> tuple[State, dict[str, Any]]:
        """All that another worker needs to be where this one is; good until the next step."""
        self._account.settle()
        ending = {name: getattr(self, name) for name in _ENDING}
        return self._trainee.state(), {**self._position(), "ending": ending}

    def take_over(self, state: State, position: dict[str, Any]) -> None:
        self._trainee.load(state)
        self._go_to(position)
        for name, value in position["ending"].items():
            setattr(self, name, value)
        self._saved, self._recovered = None, True

    # The rest is nobody else's business.

    def _begin(self) -> None:
        found = None if self._recovered else self._archive.source(lost_all=self.world.generation > 0)
        if found:
            self._go_to(self._archive.read(found))
            self._saved = self._place()
        self._begun = True
        self._tell("on_fit_begin")
        self._clock.start()

    def _begin_to_agree(self, on: Literal["validation", "epoch"]) -> None:
        """From here on callbacks are told of what a lost peer may still undo."""
        self._audience.mark()
        self._open = on

    def _to_go_on_with(self) -> bool:
        """Whether ``max_steps`` ended the run in the middle of an epoch."""
        return self._interrupted and not self._stop and self.epoch_step != self.steps_per_epoch

    def _validation_due(self) -> bool:
        """Whether it is time, and not the end of the epoch, which has a validation of its own."""
        every = self.job.validate_every
        ends = self._stop or self._at_step_limit() or self.epoch_step == self.steps_per_epoch
        return every is not None and self.step % every == 0 and self._validated != self.step and not ends

    def _validate_within_the_epoch(self) -> None:
        """Validate, tell, and decide together whether to stop at once."""
        self._begin_to_agree("validation")
        self.logs = self._note_validation(self.validation())
        self._can_stop_now = True
        self._tell("on_validation")
        self._can_stop_now = False
        self._agree(stop=self._stop_wanted_now)
        self._validated = self.step

    def _agree(self, *, stop: bool) -> None:
        """Decide together whether to stop, and let everyone know what the first worker's callbacks know."""
        said = self.world.all_gather((stop, self._audience.states() if self.rank == 0 else []))
        self._open = None
        self._stop = any(wanted for wanted, _ in said)
        self._audience.follow(said[0][1])

    def _note_validation(self, scores: dict[str, float]) -> dict[str, float]:
        record = self._rounded({"epoch": self.epoch + 1, "step": self.step, **scores})
        if scores:
            self.validations.append(record)
        return record

    def _rounded(self, logs: dict[str, float]) -> dict[str, float]:
        if not self.job.deterministic:
            return logs
        # Sums of few large parts: what the order of workers changes is far behind.
        return {name: float(f"{value:.10g}") for name, value in logs.items()}

    def _at_step_limit(self) -> bool:
        return self.job.max_steps is not None and self.step >= self.job.max_steps

    def _tell(self, event: str, *details: Any) -> None:
        self._audience.tell(self, event, *details)

    def _save_checkpoint(self) -> None:
        if not self._archive.open or self._saved == self._place() or self._closed_early:
            return
        self._account.settle()
        strike = partial(self._strike, "checkpoint", self.step)
        if self.world.rank == 0:
            self._hear_of_checkpoint(wait=True)
            self._archive.write(self.step, self._position(), strike)
        else:
            strike()
        self._saved = self._place()

    def _hear_of_checkpoint(self, *, wait: bool = False) -> None:
        path = self._archive.written(wait=wait)
        if path is not None:
            self._tell("on_checkpoint", path)
            self.world.report(Saved(self.step))

    def _strike(self, phase: fault.Phase, step: int | None = None) -> None:
        if self.job.faults:
            attempt = self.job.attempt + self.world.generation
            fault.strike(self.job.faults, phase, self.rank, self.step if step is None else step, attempt)

    def _place(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "epoch_step": self.epoch_step, "step": self.step, "over": self._over}

    def _position(self) -> dict[str, Any]:
        return {
            **self._place(),
            "first_epoch": self.first_epoch,
            **self._account.to_dict(),
            "history": self.history,
            "validations": self.validations,
            "validated": self._validated,
            "times": self.times[-TIMES_KEPT:],
            "callbacks": self._audience.to_list(),
            "signature": self._archive.signature,
        }

    def _go_to(self, position: dict[str, Any]) -> None:
        self.epoch, self.epoch_step = position["epoch"], position["epoch_step"]
        self.step, self._over = position["step"], position["over"]
        self._account = Account.from_dict(position)
        self.history = position["history"]
        self.validations = position.get("validations", [])
        self.times = [EpochTimes(*each) for each in position.get("times", ())]
        self._validated = position.get("validated")
        self.first_epoch = position["first_epoch"]
        self._audience.load(position["callbacks"])

    def _last_times(self) -> list[EpochTimes]:
        return [each for each in self.times if each.epoch == self.epoch + 1]

    def _report_progress(self) -> None:
        if self.world.size > 1:
            pace = self._clock.pace(max(0.5, self.world.size / PACES_PER_S))
            if pace is not None:
                self.world.report(pace)
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
                loss=self._account.running_loss,
                logs=self.logs if epoch_over else {},
                epoch_over=epoch_over,
                stragglers=tuple(stragglers(self._last_times())) if epoch_over else (),
            )
        )


def _first_row(batch: Batch) -> Any:
    inputs = (batch.parts[0] if isinstance(batch, LogicalBatch) else batch).inputs
    if not all(map(rows.has_rows, tree.leaves(inputs))):
        return None
    return tree.map_leaves(lambda leaf: copy.deepcopy(leaf[:1]), inputs)
