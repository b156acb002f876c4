"""What happens in the processes in which the original and the plans are built, judged and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seamline.core import registry
from seamline.core.runtime import Calibration, Flat, Plan, Predictor

LEAST_CALLS = 3
LONG_BURST_S = 2.0
"""After this a burst ends, however few calls it has."""


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

    def answers(self, predictor: Predictor) -> list[Any]:
        """What plans and original are compared by: on real rows where there are some."""
        return [self.portable.answer(predictor, tensors) for tensors in self._questions()]

    def _questions(self) -> list[Flat]:
        return [tensors for tensors, _ in self.validation[:4]] or [self.portable.sample]


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known of a contender before it is timed."""

    answers: list[Any]
    score: float | None


class Contender:
    """One way to call the model, in a process of its own; it does what it is asked, by name and arguments."""

    def __init__(self, experiment: Experiment, predictor: Predictor) -> None:
        self._experiment = experiment
        self._predictor = predictor
        self._call = experiment.portable.caller(predictor)

    def __call__(self, wanted: tuple[str, tuple[Any, ...]]) -> Any:
        name, arguments = wanted
        return getattr(self, name)(*arguments)

    def judged(self) -> Judged:
        return Judged(self._experiment.answers(self._predictor), self._experiment.score(self._predictor))

    def burst(self, length_s: float) -> list[float]:
        """Seconds of each call in a row of some."""
        calls: list[float] = []
        begin = now = time.perf_counter()
        while now - begin < (length_s if len(calls) >= LEAST_CALLS else LONG_BURST_S):
            before = now
            self._call()
            now = time.perf_counter()
            calls.append(now - before)
        return calls


# How the processes are set up


def exporter(portable: Any) -> Callable[[Any], None]:
    portable.export()
    return lambda _: None


def original(experiment: Experiment) -> Contender:
    return Contender(experiment, experiment.portable.original())


def built(experiment: Experiment, plan: Plan, folder: Path) -> Contender:
    registry.runtime(plan.runtime).build(experiment.portable, plan, folder, experiment.calibrate())
    return loaded(experiment, plan, folder)


def loaded(experiment: Experiment, plan: Plan, folder: Path) -> Contender:
    return Contender(experiment, registry.runtime(plan.runtime).load(folder, plan, experiment.portable.flat))
