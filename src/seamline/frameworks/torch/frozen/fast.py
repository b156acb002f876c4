"""The fastest way to compute features that are still the right ones, found by trying."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from seamline.core import registry
from seamline.core.errors import ExportError
from seamline.core.files import Scratch
from seamline.core.runtime import Calibration, Plan, Predictor, Runtime
from seamline.frameworks.torch.frozen.ambient import Ambient
from seamline.frameworks.torch.frozen.call import some_rows
from seamline.frameworks.torch.frozen.fold import fold
from seamline.frameworks.torch.frozen.site import Site, Tensors
from seamline.frameworks.torch.inference.form import CallForm, Form
from seamline.frameworks.torch.inference.portable import ONNX, PROBLEM, TorchPortable, call_with_tensors
from seamline.frameworks.torch.inference.structure import Slot

Precision = Literal["auto", "fastest", "fp32", "bf16", "int8"]

PLAIN = "plain"
BUDGET_S = {"auto": 20.0, "fastest": 45.0, "bf16": 20.0, "int8": 20.0}
"""After this, nothing more is tried."""
WORTH_QUANTISING_S = 0.2
"""A part that is computed faster than this gains less than quantising it costs."""
WORTH_EXPORTING_S = 0.02
"""A part that is computed faster than this gains less than the export to another runtime costs."""
CLEARLY_FASTER = 1.1
TRY_S, FEWEST_ROWS, ROUNDS = 0.5, 8, 2

FARTHEST = {"fp32": 1e-5, "bf16": 2e-2, "int8": 1e-1}
"""How far features may be from the plain ones, relative to their length."""
_WANTED = {
    "auto": ("bf16", "fp32"),
    "fastest": ("int8", "bf16", "fp32"),
    "fp32": (),
    "bf16": ("bf16",),
    "int8": ("int8",),
}
"""Precisions in the order in which they are tried; once one has a clearly faster way, that is enough."""
_TOO_LONG_TO_BUILD = ("compile", "script", "accuracy-aware", "dynamic")


@dataclass(frozen=True)
class Way:
    """One way to compute the features."""

    name: str
    precision: str
    compute: Callable[[Tensors], list[torch.Tensor]] = field(repr=False)
    seconds: float = float("nan")
    distance: float = 0.0

    @property
    def exact(self) -> bool:
        return self.name == PLAIN


def plain(site: Site) -> Way:
    return Way(PLAIN, "fp32", site.features)


def ways(
    site: Site, inputs: Tensors, precision: Precision, ambient: Ambient, only: str | None = None
) -> tuple[list[Way], dict[str, str]]:
    """Every way that gives the right features, the plain one first, with seconds for a batch; and what failed why.

    ``only`` names the one that somebody else has chosen.
    """
    if precision not in _WANTED:
        raise ValueError(f"no precision {precision!r} for a frozen part; there are {', '.join(map(repr, _WANTED))}")
    with torch.no_grad(), ambient.again():
        first = plain(site)
        inputs = _enough_rows(first, inputs)
        reference = first.compute(inputs)
        good, failed = [replace(first, seconds=_seconds(first, inputs))], dict[str, str]()
        if not _WANTED[precision] or only == PLAIN:
            return good, failed
        begin = time.monotonic()
        try:
            worth = good[0].seconds >= WORTH_EXPORTING_S or precision == "int8"
            workshop = _Workshop(site, inputs, reference, worth_exporting=worth)
            workshop.worth_quantising = good[0].seconds >= WORTH_QUANTISING_S
        except Exception as error:  # a module that cannot be copied is computed where it is
            return good, {"copy": _first_line(error)}
        for kind in _WANTED[precision]:
            if fastest(good) is not good[0]:
                break
            if kind == "int8" and precision == "fastest" and not workshop.worth_quantising:
                continue
            for runtime, plan in workshop.plans(kind):
                if only not in (None, plan.name):
                    continue
                if only is None and time.monotonic() - begin > BUDGET_S[precision]:
                    failed[plan.name] = "there was no time left to try it"
                    continue
                try:
                    farthest = FARTHEST[kind] if kind == precision else min(FARTHEST[kind], FARTHEST["bf16"])
                    way = _checked(workshop.build(runtime, plan), inputs, reference, farthest)
                except Exception as error:  # another library's; the plain way is always there
                    failed[plan.name] = _first_line(error)
                else:
                    good.append(replace(way, seconds=_seconds(way, inputs)))
        return _in_turns(good, inputs), failed


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def fastest(found: Sequence[Way]) -> Way:
    """The plain way unless another is clearly faster."""
    best = min(found, key=lambda way: way.seconds)
    return best if best.seconds * CLEARLY_FASTER < found[0].seconds else found[0]


def distance(ours: Tensors, theirs: Tensors) -> float:
    """How far features are from others, relative to their length; the worst of several."""
    worst = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if one.shape != other.shape:
            return float("inf")
        if not other.is_floating_point():
            worst = max(worst, 0.0 if torch.equal(one, other) else float("inf"))
            continue
        length = other.double().norm()
        away = float((one.double() - other.double()).norm() / length) if length else float(one.double().norm())
        worst = max(worst, away if away == away else float("inf"))
    return worst


class _Workshop:
    """Builds candidates from one copy of the beginning, with normalisation folded in."""

    def __init__(self, site: Site, inputs: Tensors, features: Tensors, *, worth_exporting: bool) -> None:
        self._scratch = Scratch()
        inside = Form((tuple(map(Slot, range(len(inputs)))), {}))
        outside = Form(tuple(map(Slot, range(len(features)))))
        model = fold(site.copied().eval())
        portable = _ExportedOnDemand if worth_exporting else _NeverExported
        self._portable = portable(model, CallForm((), inside, outside), self._scratch.path, list(inputs))
        self._like = [(feature.dtype, memory_format(feature)) for feature in features]
        self._device = inputs[0].device.type

    worth_quantising = True

    def plans(self, precision: str) -> Iterator[tuple[Runtime, Plan]]:
        runtimes = [registry.runtime(n) for n, entry in registry.entries("runtimes").items() if entry.problem() is None]
        for runtime in runtimes:
            for plan in runtime.plans(self._portable, metric_given=False):
                if plan.precision == precision and plan.variant not in _TOO_LONG_TO_BUILD:
                    yield runtime, plan.tuned(torch.get_num_threads(), "latency")

    def build(self, runtime: Runtime, plan: Plan) -> Way:
        folder = self._scratch.folder(plan.name)
        # Some rows are left out, so that answers are checked on rows that were not calibrated with.
        rows = max(1, len(self._portable.sample[0]) * 3 // 4)
        calibration = Calibration([[tensor.cpu().numpy() for tensor in some_rows(self._portable.sample, rows)]])
        runtime.build(self._portable, plan, folder, calibration)
        return Way(plan.name, plan.precision, self._computing(runtime.load(folder, plan, self._portable.flat)))

    def _computing(self, predictor: Predictor) -> Callable[[Tensors], list[torch.Tensor]]:
        scratch, like, device = self._scratch, self._like, self._device

        def compute(inputs: Tensors) -> list[torch.Tensor]:
            assert scratch.path  # some runtimes map their files
            with torch.autocast(device, enabled=False):
                found = call_with_tensors(predictor, inputs)
            return [_ordinary(tensor, *kind) for tensor, kind in zip(found, like, strict=True)]

        return compute


class _ExportedOnDemand(TorchPortable):
    """Exported when the first runtime asks for it, for that takes seconds."""

    def onnx(self) -> Path:
        if not (self.folder / ONNX).exists() and not (self.folder / PROBLEM).exists():
            self.export()
        return super().onnx()


class _NeverExported(TorchPortable):
    def onnx(self) -> Path:
        raise ExportError("it is so fast already that an export would not pay")


def _checked(way: Way, inputs: Tensors, reference: Tensors, farthest: float) -> Way:
    away = distance(way.compute(inputs), reference)
    if away > farthest:
        raise ValueError(f"its features are {away:.1e} away from the plain ones")
    return replace(way, distance=away)


def _enough_rows(way: Way, inputs: Tensors) -> Tensors:
    """As many rows as are computed in about half a second, for the comparison."""
    few = some_rows(inputs, FEWEST_ROWS)
    _seconds(way, few)
    return some_rows(inputs, max(FEWEST_ROWS, int(FEWEST_ROWS * TRY_S / _seconds(way, few))))


def _in_turns(found: list[Way], inputs: Tensors) -> list[Way]:
    """Measure the fastest and the plain way again in turns, so that a lucky moment does not win."""
    best = sorted(found[1:], key=lambda way: way.seconds)[:3]
    timed: dict[str, list[float]] = {way.name: [way.seconds] for way in found}
    for _ in range(ROUNDS if best else 0):
        for way in (found[0], *best):
            timed[way.name].append(_seconds(way, inputs))
    return [replace(way, seconds=min(timed[way.name])) for way in found]


def _seconds(way: Way, inputs: Tensors) -> float:
    begin = time.perf_counter()
    way.compute(inputs)
    return time.perf_counter() - begin


def memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """The layout to bring a copy into, so that what follows computes as it did."""
    if tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def _ordinary(tensor: torch.Tensor, dtype: torch.dtype, layout: torch.memory_format) -> torch.Tensor:
    """As the plain way gives it, and fit to be saved for a backward pass."""
    tensor = tensor.to(dtype).contiguous(memory_format=layout)
    return tensor.clone() if tensor.is_inference() else tensor
