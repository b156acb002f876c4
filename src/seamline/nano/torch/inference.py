"""The fastest way to serve a model that keeps its answers, found on the machine at hand."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch
from torch import nn

from seamline.core import machine, registry
from seamline.core.errors import SeamlineError
from seamline.core.files import Scratch
from seamline.core.runtime import Goal, Plan, Precision
from seamline.frameworks.torch.inference.batches import calibration_batches, validation_batches, with_sizes_of
from seamline.frameworks.torch.inference.form import rows_of
from seamline.frameworks.torch.inference.portable import TorchPortable, evaluating, first_call
from seamline.frameworks.torch.inference.samples import Call, calls
from seamline.nano.inference.measuring import Experiment
from seamline.nano.inference.multi_instance import MultiInstance, to_multi_instance
from seamline.nano.inference.report import Report
from seamline.nano.inference.search import Search
from seamline.nano.inference.trial import Trial
from seamline.nano.torch import saving
from seamline.nano.torch.accelerated import AcceleratedModel

_ACCELERATORS = {
    None: Plan("torch"),
    "onnxruntime": Plan("onnxruntime"),
    "openvino": Plan("openvino"),
    "compile": Plan("torch", variant="compile"),
    "jit": Plan("torch", variant="script"),
}


class InferenceOptimizer:
    """Tries runtimes and precisions, measures each beside the original, and checks its answers."""

    report_: Report

    def optimize(
        self,
        model: nn.Module,
        training_data: Any = None,
        *,
        validation_data: Any = None,
        input_sample: Any = None,
        metric: Callable[[Any, Any], Any] | None = None,
        direction: Literal["max", "min"] = "max",
        goal: Goal = "latency",
        batch_size: int | None = None,
        includes: Sequence[str] | None = None,
        excludes: Sequence[str] = (),
        timeout_s: float = 120.0,
        threads: int | None = None,
        verbose: int = 1,
    ) -> Report:
        """Build and time every plan in a process of its own, and report on all of them.

        Data is a ``DataLoader``, arrays or tensors, ``(x, y)``, a dict of arguments, or one ``input_sample``.
        ``training_data`` calibrates int8; ``metric(outputs, targets)`` is computed over ``validation_data``. ``goal``
        is the latency of single rows or the throughput of batches, ``batch_size`` the rows of a measured call.
        ``includes`` and ``excludes`` name plans (``"openvino-int8"``, with ``*``), runtimes or precisions.
        """
        _check(model, direction, goal, metric, validation_data)
        with evaluating(model):
            return self._optimize(
                model,
                first_call(model, input_sample, training_data, validation_data),
                (training_data, validation_data),
                rows=batch_size or (1 if goal == "latency" else 32),
                judge={"metric": metric, "direction": direction},
                search={
                    "goal": goal,
                    "threads": threads,
                    "includes": includes,
                    "excludes": excludes,
                    "timeout_s": timeout_s,
                    "verbose": verbose,
                },
            )

    def _optimize(
        self, model: nn.Module, call: Call, data: tuple[Any, Any], *, rows: int, judge: Any, search: Any
    ) -> Report:
        home = Scratch()
        found = TorchPortable.of(model, call, home.folder("export"), rows)
        calibration = calibration_batches(model, found.form, call, *data)
        validation = validation_batches(model, found.form, data[1])
        portable = with_sizes_of(found, calibration, [tensors for tensors, _ in validation])
        experiment = Experiment(portable, calibration, validation, **judge)
        trials = Search(experiment, home.path, **search).run()
        self.report_ = Report(
            trials,
            direction=judge["direction"],
            load=lambda trial: _loaded(trial, portable, home),
            folder=home,
            measured=_measured(portable, search["threads"]),
        )
        return self.report_

    def summary(self) -> None:
        """Print the report of the last ``optimize``."""
        print(self._report())

    def get_model(self, name: str) -> Any:
        return self._report().get_model(name)

    def get_best_model(
        self,
        *,
        accelerator: str | None = None,
        precision: str | None = None,
        accuracy_criterion: float | None = None,
    ) -> tuple[Any, Plan]:
        """The fastest of those with this accelerator and precision; ``accuracy_criterion`` is the allowed drop."""

        wanted = _ACCELERATORS.get(accelerator)
        if wanted is None and accelerator not in registry.entries("runtimes"):
            raise ValueError(_no_accelerator(accelerator))
        variant = wanted.variant if wanted is not None else ""

        def only(trial: Trial) -> bool:
            plan = trial.plan
            kind = accelerator in (None, plan.runtime) or (variant != "" and plan.variant == variant)
            return kind and precision in (None, plan.precision)

        report = self._report()
        drop = 0.01 if accuracy_criterion is None else accuracy_criterion
        chosen = report.best_trial(max_drop=drop, only=only)
        return report.get_model(chosen.name), chosen.plan

    def _report(self) -> Report:
        if not hasattr(self, "report_"):
            raise SeamlineError("nothing was optimised yet; call optimize first")
        return self.report_

    # For those who know what they want

    @staticmethod
    def trace(
        model: nn.Module,
        accelerator: str | None = None,
        *,
        input_sample: Any = None,
        training_data: Any = None,
        threads: int | None = None,
    ) -> AcceleratedModel:
        """The model in full precision on ``"onnxruntime"``, ``"openvino"``, ``"compile"`` or ``"jit"``."""
        if accelerator not in _ACCELERATORS:
            raise ValueError(_no_accelerator(accelerator))
        plan = _ACCELERATORS[accelerator].tuned(threads, "latency")
        return _build(model, lambda _: plan, input_sample, training_data)

    @staticmethod
    def quantize(
        model: nn.Module,
        precision: Precision = "int8",
        accelerator: str | None = None,
        *,
        calib_data: Any = None,
        input_sample: Any = None,
        validation_data: Any = None,
        metric: Callable[[Any, Any], Any] | None = None,
        direction: Literal["max", "min"] = "max",
        accuracy_criterion: float | None = None,
        threads: int | None = None,
    ) -> AcceleratedModel:
        """The model in lower precision; an error if that costs more of the metric than ``accuracy_criterion``."""

        def choose(portable: TorchPortable) -> Plan:
            return _quantised_plan(portable, precision, accelerator).tuned(threads, "latency")

        if accuracy_criterion is not None and (metric is None or validation_data is None):
            raise ValueError("accuracy_criterion= needs metric= and validation_data= to compare by")
        fast = _build(model, choose, input_sample, calib_data, validation_data)
        if metric is not None and accuracy_criterion is not None:
            with evaluating(model):
                before, after = (_score(each, model, validation_data, metric) for each in (model, fast))
            drop = before - after if direction == "max" else after - before
            if not drop <= accuracy_criterion:
                raise SeamlineError(
                    f"{fast.plan} brings the score from {before:.4f} to {after:.4f}, more than the allowed "
                    f"{accuracy_criterion}; try precision='bf16' or more calib_data"
                )
        return fast

    # Using, saving, loading

    @staticmethod
    @contextlib.contextmanager
    def get_context(model: Any) -> Iterator[None]:
        """Inference mode, with the number of threads that the model was measured with."""
        plan = getattr(model, "plan", None)
        before = torch.get_num_threads()
        if plan is not None and plan.threads:
            torch.set_num_threads(plan.threads)
        try:
            with torch.inference_mode():
                yield
        finally:
            torch.set_num_threads(before)

    @staticmethod
    def to_multi_instance(model: Any, *, num_processes: int, cores_per_process: int | None = None) -> MultiInstance:
        """Several pinned copies of a model that serve a stream of batches in order."""
        return to_multi_instance(model, num_processes=num_processes, cores_per_process=cores_per_process)

    @staticmethod
    def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
        """Save as the runtime's own files and a JSON card; ``path`` must not exist.

        Of an original, which ``best`` gives where nothing is faster, the weights are saved.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"a {type(model).__name__} is no model to save")
        saving.save(model, path)

    @staticmethod
    def load(path: str | os.PathLike[str], model: nn.Module | None = None) -> Any:
        """Load a saved model; ``model``, the original, brings back its attributes and methods."""
        return saving.load(path, model)


def _no_accelerator(name: str | None) -> str:
    return f"no accelerator named {name!r}; there are {', '.join(map(repr, filter(None, _ACCELERATORS)))}"


def _check(model: Any, direction: str, goal: str, metric: Any, validation_data: Any) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, but got {type(model).__name__}")
    if direction not in ("max", "min"):
        raise ValueError(f"no direction {direction!r}; there are 'max' and 'min'")
    if goal not in ("latency", "throughput"):
        raise ValueError(f"no goal {goal!r}; there are 'latency' and 'throughput'")
    if metric is not None and validation_data is None:
        raise ValueError("metric= needs validation_data= to be computed on")


def _measured(portable: TorchPortable, threads: int | None) -> str:
    rows = rows_of(portable.sample)
    count = threads or machine.cores().count
    return f"one call after the other, each of {rows} row{'s' * (rows != 1)} on {count} thread{'s' * (count != 1)}"


def _loaded(trial: Trial, portable: TorchPortable, home: Scratch) -> Any:
    if trial.folder is None:
        return portable.model
    facts = {key: value for key, value in trial.to_dict().items() if key not in ("plan", "status", "reason")}
    return AcceleratedModel(
        trial.folder, trial.plan, portable.form, portable.shapes, portable.model, keeps=home, facts=facts
    )


def _build(
    model: nn.Module, choose: Callable[[TorchPortable], Plan], input_sample: Any, *data: Any
) -> AcceleratedModel:
    call = first_call(model, input_sample, *data)
    home = Scratch()
    with evaluating(model):
        found = TorchPortable.of(model, call, home.folder("export"))
        calibration = calibration_batches(model, found.form, call, *data)
        portable = with_sizes_of(found, calibration)
        plan = choose(portable)
        portable.export()
        folder = home.folder(plan.name)
        experiment = Experiment(portable, calibration, [])
        registry.runtime(plan.runtime).build(portable, plan, folder, experiment.calibrate())
        return AcceleratedModel(folder, plan, portable.form, portable.shapes, model, keeps=home)


def _quantised_plan(portable: TorchPortable, precision: str, accelerator: str | None) -> Plan:
    """The first plan of that precision that the accelerator, or else any runtime, offers here."""
    offered = [
        plan
        for name, entry in registry.entries("runtimes").items()
        if accelerator in (None, name) and entry.problem() is None
        for plan in registry.runtime(name).plans(portable, metric_given=False)
    ]
    found = next((plan for plan in offered if plan.precision == precision), None)
    if found is None:
        known = ", ".join(sorted({plan.precision for plan in offered})) or "nothing"
        raise ValueError(f"no {precision} on {accelerator or 'any runtime'} here; there is {known}")
    return found


def _score(model: Any, original: nn.Module, data: Any, metric: Callable[[Any, Any], Any]) -> float:
    total, rows = 0.0, 0
    with torch.no_grad():
        for each in calls(original, data):
            outputs = model(*each.args, **each.kwargs)
            count = len(next(iter([*each.args, *each.kwargs.values()])))
            total += float(metric(outputs, each.targets)) * count
            rows += count
    return total / rows
