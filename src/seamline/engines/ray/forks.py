"""On a Ray of our own, workers as forks of a process that has imported Ray and the large libraries once.

Ray starts a worker by importing itself twice, and then the worker imports torch. It lets us name the command that runs
a worker, and ours (``order.py``) asks a nursery for a fork instead.
"""

from __future__ import annotations

import contextlib
import itertools
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray

from seamline.core.nursery import Libraries, Nurseries, Nursery

_TRIED_WITH = ("2.60.",)
"""Versions of Ray whose workers are known to live well as forks; those of others start as Ray starts them."""
_FIRST = ("ray._private.workers.default_worker", "seamline.engines.ray.worker", "seamline.engines.ray.meeting")


class Forks:
    """The nurseries of one Ray, each with the variables that its forks are to have; their doors lie in its folder."""

    def __init__(self, folder: Path, mark: Mapping[str, str], raylet: int) -> None:
        self._folder = folder
        self._address = ray.get_runtime_context().gcs_address
        self._own = {  # what Ray's library reads when it is loaded
            **mark,
            "RAY_JOB_ID": ray.get_runtime_context().get_job_id(),
            "RAY_RAYLET_PID": str(raylet),
            "SPT_NOENV": "1",
        }
        self._nurseries = Nurseries()
        self._doors = itertools.count(1)

    @property
    def in_use(self) -> bool:
        """Whether the Ray that this process is connected to is still theirs."""
        return bool(ray.get_runtime_context().gcs_address == self._address)

    def runtime_env(self, variables: Mapping[str, str]) -> dict[str, Any]:
        kind = tuple(sorted(variables.items()))
        nursery = self._nurseries.of(kind, lambda: self._made(variables))
        large = Libraries.of_this_process()
        with contextlib.suppress(OSError):  # it has just gone, and nobody will open
            nursery.prepare(Libraries([*_FIRST, *large.first], large.later))
        words = [
            sys.executable,
            "-I",
            "-S",
            str(Path(__file__).with_name("order.py")),
            str(nursery.door),
            sys.executable,
        ]
        return {"env_vars": dict(variables), "py_executable": shlex.join(words)}

    def _made(self, variables: Mapping[str, str]) -> Nursery:
        return Nursery({**variables, **self._own}, self._folder / f"door-{next(self._doors)}")

    def end(self) -> None:
        for nursery in self._nurseries.all():
            nursery.end()


_here: Forks | None = None


def begin(folder: Path, mark: Mapping[str, str], raylet: int) -> None:
    """Let actors of the Ray that was started here be forks from now on.

    Not where the program has an environment of its own for all that Ray starts, with other packages perhaps.
    """
    global _here
    if ray.__version__.startswith(_TRIED_WITH) and not ray.get_runtime_context().runtime_env:
        _here = Forks(folder, mark, raylet)


def end() -> None:
    global _here
    if _here is not None:
        _here.end()
    _here = None


def runtime_env(variables: Mapping[str, str]) -> dict[str, Any]:
    """What to tell Ray so that an actor with these variables is a fork; nothing where Ray is not ours."""
    return _here.runtime_env(variables) if _here is not None and _here.in_use else {}
