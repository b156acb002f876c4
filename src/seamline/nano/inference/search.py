"""Try every plan in processes of its own, one after the other, and compare the best head to head."""

from __future__ import annotations

import fnmatch
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seamline.core import machine, registry
from seamline.core.errors import RunTimeoutError, SeamlineError, WorkerError
from seamline.core.runtime import Goal, Plan
from seamline.nano.inference import measuring
from seamline.nano.inference.measuring import Attempt, Experiment, Measured
from seamline.nano.inference.trial import Timing, Trial

FINALISTS = 3
EXACT = 1e-3
"""How far the answers of a plan in full precision may be from the original's before they are called wrong."""


@dataclass
class Search:
    """One search over all runtimes."""

    experiment: Experiment
    folder: Path
    goal: Goal = "latency"
    threads: int | None = None
    includes: Sequence[str] | None = None
    excludes: Sequence[str] = ()
    timeout_s: float = 120.0
    verbose: int = 1
    _said: deque[str] = field(default_factory=lambda: deque(maxlen=20))

    def run(self) -> list[Trial]:
        """Every trial, the original first."""
        self._in_processes(measuring.export, [self.experiment.portable])
        reference, score, burst = self._in_processes(measuring.original, [self.experiment])[0]
        original = Trial(
            plan=Plan("original"),
            status="original",
            timing=Timing([burst], [burst]),
            score=score,
            distance=0.0,
        )
        trials: list[Trial] = []
        plans = list(self._plans())
        with self._bar() as bar:
            task = bar.add_task("trying plans", total=len(plans) + 1)
            for plan in plans:
                bar.update(task, description=f"trying {plan.name}")
                trials.append(plan if isinstance(plan, Trial) else self._try(plan, reference, trials))
                bar.advance(task)
            bar.update(task, description="comparing the best")
            original, trials = self._final(original, trials)
            bar.advance(task)
        return [original, *trials]

    def _plans(self) -> Iterator[Plan | Trial]:
        """The plans that are wanted; a runtime that is not installed is a trial that has failed already."""
        for name, entry in registry.entries("runtimes").items():
            problem = entry.problem()
            if problem is not None:
                if self._wanted(Plan(name)):
                    yield Trial(plan=Plan(name), status="failed", reason=str(problem))
                continue
            offered = registry.runtime(name).plans(
                self.experiment.portable, metric_given=self.experiment.metric is not None
            )
            for plan in offered:
                if self._wanted(plan):
                    yield plan.tuned(self.threads, self.goal)

    def _wanted(self, plan: Plan) -> bool:
        def matches(pattern: str) -> bool:
            return fnmatch.fnmatch(plan.name, pattern) or pattern in (plan.runtime, plan.precision, plan.variant)

        included = self.includes is None or any(map(matches, self.includes))
        return included and not any(map(matches, self.excludes))

    def _try(self, plan: Plan, reference: list[list[Any]], before: Sequence[Trial]) -> Trial:
        folder = self.folder / plan.name
        folder.mkdir()
        done = [trial for trial in before if trial.status == "good" and trial.timing is not None]
        best = max(done, key=lambda trial: trial.speedup or 0.0, default=None)
        attempt = Attempt(self.experiment, plan, folder, reference, best.timing if best else None)
        try:
            measured: Measured = self._in_processes(measuring.build_and_measure, [attempt, attempt])[1]
        except SeamlineError as error:
            return Trial(plan=plan, status="failed", reason=_reason(error))
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
        trial = Trial(
            plan=plan,
            status="good",
            timing=measured.timing,
            score=measured.score,
            distance=measured.distance,
            size_mb=size or None,
            folder=folder,
        )
        if plan.precision == "fp32" and measured.distance > EXACT:
            reason = f"wrong answers: {measured.distance:.1e} away from the original's"
            return replace(trial, status="failed", reason=reason)
        if measured.gave_up:
            return replace(trial, status="too slow", reason="far slower than the best so far")
        return trial

    def _final(self, original: Trial, trials: list[Trial]) -> tuple[Trial, list[Trial]]:
        """Measure the fastest again, all in turns, so that a lucky moment does not win."""
        good = [trial for trial in trials if trial.status == "good"]
        finalists = sorted(good, key=lambda trial: trial.speedup or 0.0, reverse=True)[:FINALISTS]
        if not finalists:
            return original, trials
        contenders = [(self.experiment, None, None)]
        contenders += [(self.experiment, trial.plan, trial.folder) for trial in finalists]  # type: ignore[misc]
        try:
            bursts = self._in_processes(measuring.head_to_head, contenders)[0]
        except SeamlineError:
            return original, trials  # the single measurements stand
        final = {
            trial.name: replace(trial, timing=Timing(bursts[place], bursts[0]))
            for place, trial in enumerate(finalists, start=1)
        }
        original = replace(original, timing=Timing(bursts[0], bursts[0]))
        return original, [final.get(trial.name, trial) for trial in trials]

    def _in_processes(self, task: Any, shards: Sequence[Any]) -> list[Any]:
        self._said.clear()
        engine = registry.engine(
            "local",
            threads=self.threads or machine.cores().count,
            pin=False,
            timeout_s=self.timeout_s,
            tell=lambda rank, stream, line: self._said.append(line),
        )
        return engine.run(task, shards)

    def _bar(self) -> Progress:
        console = Console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        shown = self.verbose > 0 and (console.is_terminal or console.is_jupyter)
        return Progress(*columns, console=console, disable=not shown)


def _reason(error: SeamlineError) -> str:
    """The line of an error that a person reads first."""
    if isinstance(error, RunTimeoutError):
        return f"took too long: {error}"
    if isinstance(error, WorkerError) and error.__cause__ is not None:
        lines = str(error.__cause__).strip().splitlines()
        first = lines[0] if lines else ""
        kind = type(error.__cause__).__name__
        return first if isinstance(error.__cause__, SeamlineError) else f"{kind}: {first}"
    if isinstance(error, WorkerError):
        return error.traceback.strip().splitlines()[-1]
    return str(error)
