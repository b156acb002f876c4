"""Try every plan in a process of its own, one after the other, and compare the best head to head."""

from __future__ import annotations

import contextlib
import fnmatch
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from seamline.core import machine, registry
from seamline.core.errors import RunTimeoutError, SeamlineError, WorkerError
from seamline.core.runtime import Goal, Plan
from seamline.nano.inference import measuring
from seamline.nano.inference.bench import Bench, in_turns
from seamline.nano.inference.measuring import Experiment, Judged
from seamline.nano.inference.trial import Timing, Trial

FINALISTS = 3
EXACT = 1e-3
"""Answers so near to the original's that nobody will reject them."""


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

    def run(self) -> list[Trial]:
        """Every trial, the original first."""
        starting = self._bench(partial(measuring.original, self.experiment))
        with contextlib.closing(starting):
            with contextlib.suppress(SeamlineError), self._bench(partial(measuring.exporter, self.experiment.portable)):
                pass  # the plans that need the exported form say what became of it
            with starting as original, self._bar() as bar:
                return self._compare(original, bar)

    def _compare(self, original: Bench, bar: Progress) -> list[Trial]:
        plans = list(self._plans())
        if self.includes is not None and not plans:
            raise ValueError(f"includes={list(self.includes)} names no plan for this model; without it all are tried")
        trials: list[Trial] = []
        task = bar.add_task("trying plans", total=len(plans) + 1)
        reference: Judged = original.ask("judged")
        for plan in plans:
            bar.update(task, description=f"trying {plan.name}")
            trials.append(plan if isinstance(plan, Trial) else self._try(plan, original, reference, trials))
            bar.advance(task)
        bar.update(task, description="comparing the best")
        bursts, trials = self._final(original, trials)
        bar.advance(task)
        timing = Timing(bursts, bursts)
        return [Trial(Plan("original"), "original", timing=timing, score=reference.score, distance=0.0), *trials]

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

    def _try(self, plan: Plan, original: Bench, reference: Judged, before: Sequence[Trial]) -> Trial:
        folder = self._folder(plan)
        folder.mkdir()
        done = [trial for trial in before if trial.status == "good" and trial.timing is not None]
        best = max(done, key=lambda trial: trial.speedup or 0.0, default=None)
        try:
            with self._bench(partial(measuring.built, self.experiment, plan, folder)) as bench:
                judged: Judged = bench.ask("judged")
                bursts, gave_up = in_turns([original, bench], best.timing if best else None)
        except SeamlineError as error:
            return Trial(plan, "failed", reason=_reason(error))
        away = distance(judged.answers, reference.answers)
        trial = Trial(
            plan,
            "good",
            timing=Timing(bursts[1], bursts[0]),
            score=judged.score,
            distance=away,
            size_mb=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6 or None,
            folder=folder,
        )
        if plan.precision == "fp32" and away > self.experiment.portable.exact:
            reason = f"wrong answers: {away:.1e} away from the original's"
            return replace(trial, status="failed", reason=reason)
        if gave_up:
            return replace(trial, status="too slow", reason="far slower than the best so far")
        return trial

    def _final(self, original: Bench, trials: list[Trial]) -> tuple[list[list[float]], list[Trial]]:
        """Measure the fastest again, all in turns, so that a lucky moment does not win."""
        finalists = _finalists(trials)
        try:
            with contextlib.ExitStack() as stack:
                setups = [
                    partial(measuring.loaded, self.experiment, trial.plan, self._folder(trial.plan))
                    for trial in finalists
                ]
                started = [self._bench(setup) for setup in setups]
                for bench in started:
                    stack.callback(bench.close)
                bursts = in_turns([original, *map(stack.enter_context, started)])[0]
        except SeamlineError:
            return in_turns([original])[0][0], trials  # the single measurements stand
        final = {
            trial.name: replace(trial, timing=Timing(found, bursts[0]), compared=True)
            for trial, found in zip(finalists, bursts[1:], strict=True)
        }
        return bursts[0], [final.get(trial.name, trial) for trial in trials]

    def _folder(self, plan: Plan) -> Path:
        return self.folder / plan.name

    def _bench(self, setup: Callable[[], Any]) -> Bench:
        return Bench(setup, threads=self.threads or machine.cores().count, timeout_s=self.timeout_s)

    def _bar(self) -> Progress:
        console = Console()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        shown = self.verbose > 0 and (console.is_terminal or console.is_jupyter)
        return Progress(*columns, console=console, disable=not shown)


def _finalists(trials: Sequence[Trial]) -> list[Trial]:
    """The fastest, and among them one whose answers nobody will reject."""
    good = [trial for trial in trials if trial.status == "good"]
    fastest = sorted(good, key=lambda trial: trial.speedup or 0.0, reverse=True)
    exact = [trial for trial in fastest if (trial.distance or 0.0) <= EXACT]
    first = fastest[:FINALISTS]
    return first if not exact or exact[0] in first else [*first[:-1], exact[0]]


def distance(answers: list[Any], reference: list[Any]) -> float:
    """How far answers are from the original's, relative to their size; the worst output counts."""
    worst = 0.0
    for output in range(len(reference[0])):
        ours = np.concatenate([np.asarray(answer[output], np.float64).ravel() for answer in answers])
        theirs = np.concatenate([np.asarray(answer[output], np.float64).ravel() for answer in reference])
        finite = np.isfinite(theirs)
        if ours.shape != theirs.shape or not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
            return np.inf
        scale = np.linalg.norm(theirs[finite]) or 1.0
        error = np.linalg.norm(ours[finite] - theirs[finite])
        worst = max(worst, float(error / scale) if np.isfinite(error) else np.inf)
    return worst


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
