"""How many threads a numeric library should use here, and on which cores."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from seamline.core import machine
from seamline.core.machine import Cores
from seamline.nano.machine.setting import Setting

_TOPOLOGY = Path("/sys/devices/system/cpu")


def physical_cores(allowed: tuple[int, ...], topology: Path = _TOPOLOGY) -> tuple[int, ...]:
    """One of the allowed cores for each that exists in silicon: two threads on one are no faster in arithmetic."""
    first: dict[str, int] = {}
    for core in allowed:
        siblings = topology / f"cpu{core}" / "topology" / "thread_siblings_list"
        first.setdefault(siblings.read_text() if siblings.exists() else str(core), core)
    return tuple(first.values())


def thread_settings(
    environment: Mapping[str, str] = os.environ, cores: Cores | None = None, topology: Path = _TOPOLOGY
) -> Iterator[Setting]:
    """As many threads as there are cores, within affinity and quota; what the user has set is left alone."""
    cores = cores or machine.cores()
    count = min(cores.count, len(physical_cores(cores.allowed, topology)))
    why = f"{count} of {len(cores.allowed)} allowed cores can compute at once" + (
        "" if cores.quota is None else f" (quota {cores.quota:g})"
    )
    for name, value in machine.thread_settings(count, environment).items():
        yield Setting(name, value, why)


def pinning_settings(
    environment: Mapping[str, str] = os.environ, cores: Cores | None = None, topology: Path = _TOPOLOGY
) -> Iterator[Setting]:
    """Each thread of GNU OpenMP, which torch uses, on a core of its own.

    Nothing under a quota smaller than the allowed set (any core will do, and others may be less busy), nor where the
    user has set anything about threads. It is for programs that compute in one process: GNU OpenMP pins the main thread
    too, and the processes that it starts are born on that one core.
    """
    cores = cores or machine.cores()
    if machine.user_pins(environment) or cores.share(0, 1) is None:
        return
    places = " ".join(map(str, physical_cores(cores.allowed, topology)))
    yield Setting("GOMP_CPU_AFFINITY", places, "one thread on each core, where it stays")
