"""What happens in the processes in which a plan is built and measured beside the original."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seamline.core import registry
from seamline.core.runtime import Calibration, Flat, Plan, Predictor
from seamline.core.world import World
from seamline.nano.inference.trial import Timing

BURST_S = 0.15
LEAST_CALLS = 3
LONG_BURST_S = 2.0
"""After this a burst ends, however few calls it has."""
TURNS = 5
FEW_TURNS = 2
LONG_TURN_S = 4.0
"""Where a turn takes longer than this there are only a few: slow calls vary less."""
FAR_SLOWER = 2.0
"""A plan that takes so many times as long as the best one so far is not measured to the end."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything a process needs to know; the model inside is the user's."""

    portable: Any
    calibration: list[Flat]
    validation: list[tuple[Flat, Any]]
    metric: Callable[..., Any] | None = None
    direction: str = "max"
    max_drop: float = 0.01

    def score(self, predictor: Predictor) -> float | None:
        if self.metric is None or not self.validation:
            return None
        return float(self.portable.score(predictor, self.validation, self.metric))

    def calibrate(self) -> Calibration:
        def rate(predictor: Predictor) -> float:
            score = self.score(predictor)
            assert score is not None
            return score if self.direction == "max" else -score

        return Calibration(self.calibration, rate if self.metric is not None else None, self.max_drop)

    def reference(self) -> list[Any]:
        """The original's answers, against which every plan is held: on real rows where there are some."""
        original = self.portable.original()
        return [self.portable.answer(original, tensors) for tensors in self._questions()]

    def distance(self, predictor: Predictor, reference: list[list[Any]]) -> float:
        """How far answers are from the original's, relative to their size; the worst output counts."""
        worst = 0.0
        answers = [self.portable.answer(predictor, tensors) for tensors in self._questions()]
        for output in range(len(reference[0])):
            ours = np.concatenate([np.asarray(answer[output], np.float64).ravel() for answer in answers])
            theirs = np.concatenate([np.asarray(answer[output], np.float64).ravel() for answer in reference])
            same = ours.shape == theirs.shape and np.isfinite(ours).all() == np.isfinite(theirs).all()
            scale = np.linalg.norm(np.nan_to_num(theirs)) or 1.0
            error = np.linalg.norm(np.nan_to_num(ours) - np.nan_to_num(theirs)) if same else np.inf
            worst = max(worst, float(error / scale))
        return worst

    def _questions(self) -> list[Flat]:
        return [tensors for tensors, _ in self.validation[:4]] or [self.portable.sample]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a trial found."""

    timing: Timing
    score: float | None
    distance: float
    gave_up: bool


def export(world: World, portable: Any) -> None:
    portable.export()


def original(world: World, experiment: Experiment) -> tuple[list[Any], float | None, list[float]]:
    """The original's answers, score and a first timing."""
    predictor = experiment.portable.original()
    reference = experiment.reference()
    score = experiment.score(predictor)
    call = experiment.portable.caller(predictor)
    _burst(call)
    return reference, score, _burst(call)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One plan to be built, loaded and measured."""

    experiment: Experiment
    plan: Plan
    folder: Path
    reference: list[list[Any]]
    best: Timing | None = None
    """Of the fastest plan so far."""


def build_and_measure(world: World, attempt: Attempt) -> Measured | None:
    """The first worker runs the original, the second the plan; they measure in turns."""
    experiment, portable = attempt.experiment, attempt.experiment.portable
    found: tuple[float, float | None] = (0.0, None)
    if world.rank == 0:
        predictor = portable.original()
    else:
        runtime = registry.runtime(attempt.plan.runtime)
        runtime.build(portable, attempt.plan, attempt.folder, experiment.calibrate())
        predictor = runtime.load(attempt.folder, attempt.plan, portable.flat)
        found = experiment.distance(predictor, attempt.reference), experiment.score(predictor)
    turns, gave_up = measure_in_turns(world, portable.caller(predictor), attempt.best)
    if world.rank == 0:
        return None
    return Measured(Timing(turns[1], turns[0]), found[1], found[0], gave_up)


def measure_in_turns(
    world: World, call: Callable[[], Any], best: Timing | None = None
) -> tuple[list[list[list[float]]], bool]:
    """Bursts of every worker, one worker at a time, so that whatever else the machine does meets all alike."""
    _burst(call)  # warm
    bursts: list[list[list[float]]] = [[] for _ in range(world.size)]
    while len(bursts[0]) < TURNS:
        for rank in range(world.size):
            mine = _burst(call) if world.rank == rank else None
            bursts[rank].append(world.all_gather(mine)[rank] or [])
        so_far = Timing(bursts[-1], bursts[0])
        if best is not None and len(bursts[0]) > 1 and _far_slower(so_far, best):
            return bursts, True
        if len(bursts[0]) >= FEW_TURNS and sum(map(sum, (turn[-1] for turn in bursts))) > LONG_TURN_S:
            break
    return bursts, False


def _far_slower(plan: Timing, best: Timing) -> bool:
    """By the clock and by the ratio to the original: one of them alone may be the machine's mood."""
    by_clock = plan.latency_ms > FAR_SLOWER * best.latency_ms
    return by_clock and plan.speedup * FAR_SLOWER < best.speedup


def head_to_head(world: World, contender: tuple[Experiment, Plan | None, Path | None]) -> list[list[list[float]]]:
    """The last comparison: the original and the best plans, all in turns."""
    experiment, plan, folder = contender
    portable = experiment.portable
    if plan is None or folder is None:
        predictor = portable.original()
    else:
        predictor = registry.runtime(plan.runtime).load(folder, plan, portable.flat)
    return measure_in_turns(world, portable.caller(predictor))[0]


def _burst(call: Callable[[], Any]) -> list[float]:
    calls: list[float] = []
    begin = now = time.perf_counter()
    while now - begin < (BURST_S if len(calls) >= LEAST_CALLS else LONG_BURST_S):
        before = now
        call()
        now = time.perf_counter()
        calls.append(now - before)
    return calls
