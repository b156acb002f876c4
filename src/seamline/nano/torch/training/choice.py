"""Which precision, layout and compiler make this model train fastest here, found out on its own first steps.

No step is wasted: while candidates are compared, each step is an ordinary training step that happens to run in one
of them.
"""

from __future__ import annotations

import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from seamline.core import machine

ROUNDS = 3
"""Steps of each candidate that count, after one that warms it up."""
LONGEST_S = 60.0
SHARE_OF_RUN = 0.05
WORTH_IT = 1.05
"""A candidate must be this much faster than the program as it is: below that it is noise, and not worth a change."""
SHORTEST_RUN = 4
"""Steps for each candidate that a run must have to compare anything. No step of a comparison is lost."""
SHORTEST_RUN_S = 2.0
"""What a run must last: the first step of a candidate prepares its kernels, which takes a noticeable part of less."""

Compile = bool | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Setting:
    """How training steps are computed."""

    bf16: bool = False
    channels_last: bool = False
    compiled: bool = False

    def __str__(self) -> str:
        named = (("bf16", self.bf16), ("channels-last", self.channels_last), ("compile", self.compiled))
        return " + ".join(word for word, on in named if on) or "as it is"


PLAIN = Setting()


def candidates(model: nn.Module, *, bf16: bool, processes: int = 1) -> list[Setting]:
    """What is worth trying for a model; the program as it is comes first.

    Processes exchange gradients in buckets that are laid out as the weights were at the start, so among several the
    layout is settled before and not tried.
    """
    images = any(isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) for module in model.modules())
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())  # states carried on keep their type
    found = [PLAIN]
    found += [Setting(channels_last=True)] if images else []
    found += [Setting(bf16=True, channels_last=images)] if bf16 and not recurrent and machine.has_bf16() else []
    return [setting for setting in found if setting.channels_last] if images and processes > 1 else found


class Choice:
    """Takes one candidate after the other for the first steps, and keeps the fastest.

    Call ``next_step`` before each step and ``step_done`` after it. ``apply`` brings a model into a setting, ``agree``
    makes what the first process has decided the decision of all, ``say`` gets the line about it. ``steps_in_run`` may
    be infinite where nobody knows. The compiler is tried only where the rest of the run is known to be long enough for
    it to pay, or where ``compile_too`` is ``True``.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        apply: Callable[[Setting], None],
        *,
        steps_in_run: float,
        compile_too: Compile = "auto",
        agree: Callable[[Any], Any] = lambda decision: decision,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._steps_left = steps_in_run
        self._compile = compile_too
        self._apply = apply
        self._agree = agree
        self._say = say
        self.current = settings[0]
        self.chosen: Setting | None = None
        self._asked_compiler = False
        self._compare(settings)
        if steps_in_run < SHORTEST_RUN * len(settings) and compile_too is not True:
            self._keep(settings[0], f"{steps_in_run:.0f} steps are too few to measure anything")
        elif len(settings) == 1:
            self._consider_compiling(settings[0], None)

    def _compare(self, settings: Sequence[Setting]) -> None:
        affordable = (self._steps_left * SHARE_OF_RUN - 1) / len(settings) - 1
        self._rounds = max(1, int(min(ROUNDS, affordable)))
        self._seconds: dict[Setting, list[float]] = {setting: [] for setting in settings}
        self._turn = 0
        self._began = self._clock()

    def next_step(self) -> None:
        """Bring the model into the setting of the step to come."""
        if self.chosen is None:
            self._switch(list(self._seconds)[max(0, self._turn - 1) % len(self._seconds)])  # the first one twice
            self._step_began = self._clock()

    def step_done(self) -> None:
        self._steps_left -= 1
        if self.chosen is not None:
            return
        self._seconds[self.current].append(self._clock() - self._step_began)
        self._turn += 1
        if self._turn == 2 and self._agree(self._over_soon()):
            self._keep(self.current, f"the run is over within {SHORTEST_RUN_S:g} s")
        elif self._turn > 1 and (self._turn - 1) % len(self._seconds) == 0 and self._enough():
            setting, why = self._agree(self._fastest())
            self._consider_compiling(setting, why)

    def give_up(self, error: Exception) -> bool:
        """Take back a setting in which a step has raised; false if it is not the setting's fault."""
        if self.chosen is not None or self.current == next(iter(self._seconds)):
            return False
        problem = next(iter(str(error).splitlines()), "")
        self._say(f"{self.current} does not work for this model and is left out ({type(error).__name__}: {problem})")
        del self._seconds[self.current]
        self._switch(next(iter(self._seconds)))
        self._turn = 0
        return True

    def _over_soon(self) -> bool:
        left_s = self._steps_left * self._seconds[self.current][-1]
        return self._compile is not True and left_s < SHORTEST_RUN_S

    def _enough(self) -> bool:
        measured = (self._turn - 1) // len(self._seconds) - 1
        out_of_time = measured >= 1 and self._clock() - self._began > LONGEST_S
        return bool(self._agree(measured >= self._rounds or out_of_time))

    def _fastest(self) -> tuple[Setting, str]:
        usual = {setting: statistics.median(seconds[1:]) for setting, seconds in self._seconds.items()}
        plain, best = next(iter(usual)), min(usual, key=lambda setting: usual[setting])
        gain = usual[plain] / usual[best]
        if best == plain or gain < WORTH_IT:
            return plain, f"nothing was faster ({_listed(usual)})"
        return best, f"{gain:.1f} times as fast ({_listed(usual)})"

    def _consider_compiling(self, setting: Setting, why: str | None) -> None:
        seconds = [duration for taken in self._seconds.values() for duration in taken[1:]]
        left_s = self._steps_left * min(seconds, default=0.0)
        long_enough = LONGEST_S < left_s * SHARE_OF_RUN < math.inf
        pays = self._compile is True or (self._compile == "auto" and long_enough)
        if not self._asked_compiler and self._agree(pays):
            self._asked_compiler = True
            if why is not None:
                self._say(f"training runs {setting}: {why}; now the compiler is tried")
            self._compare([setting, replace(setting, compiled=True)])
        else:
            self._keep(setting, why)

    def _keep(self, setting: Setting, why: str | None) -> None:
        self._switch(setting)
        self.chosen = setting
        if why is not None:
            self._say(f"training runs {setting}: {why}")
        if self._asked_compiler and (problem := _not_compiled()):
            self._say(problem)

    def _switch(self, setting: Setting) -> None:
        if setting != self.current:
            self._apply(setting)
            self.current = setting


def _listed(usual: dict[Setting, float]) -> str:
    return ", ".join(f"{setting} {1000 * seconds:.0f} ms" for setting, seconds in usual.items())


class Form:
    """How a model lies in memory and which code computes it: as its owner has it, or as a setting asks."""

    def __init__(self, model: nn.Module) -> None:
        self._images = [tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.ndim == 4]
        self._strides = [tensor.stride() for tensor in self._images]
        self._parts = [part for part in model.children() if next(part.parameters(), None) is not None] or [model]
        self._code = [part._compiled_call_impl for part in self._parts]
        self._compiled = False

    def apply(self, setting: Setting) -> None:
        """Bring the model into a setting; its values stay, and ``PLAIN`` is what its owner had."""
        self._lay_out(setting.channels_last)
        if setting.compiled != self._compiled:
            self._compile() if setting.compiled else self._restore_code()
            self._compiled = setting.compiled

    def _lay_out(self, channels_last: bool) -> None:
        with torch.no_grad():
            for tensor, strides in zip(self._images, self._strides, strict=True):
                if channels_last:
                    tensor.data = tensor.data.contiguous(memory_format=torch.channels_last)
                elif tensor.stride() != strides:
                    own = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
                    tensor.data = own.copy_(tensor.data)

    def _compile(self) -> None:
        """What the compiler cannot handle runs as it is."""
        import torch._dynamo

        self._strict = not torch._dynamo.config.suppress_errors
        torch._dynamo.config.suppress_errors = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch's own imports
            for part in self._parts:
                part.compile()

    def _restore_code(self) -> None:
        torch._dynamo.config.suppress_errors = not self._strict
        for part, code in zip(self._parts, self._code, strict=True):
            part._compiled_call_impl = code


def _not_compiled() -> str | None:
    """What became of the compiler, where it could not do all."""
    from torch._dynamo.utils import counters

    places = sum(counters["graph_break"].values()) + counters["frames"]["total"] - counters["frames"]["ok"]
    return f"the compiler gave up in {places} places, which run as they are" if places else None
