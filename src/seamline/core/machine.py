"""What this machine gives us: cores and memory within all limits, and the variables that say so.

The only place where the environment is read.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
PINNING_VARIABLES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PROC_BIND", "OMP_PLACES")
OUR_VARIABLES = "SEAMLINE_SET"
"""The variable that names those which ``seamline run`` and ``seamline env`` have set; they are not the user's."""


@dataclass(frozen=True, slots=True)
class Cores:
    """The cores this process may use: which ones, and how many at a time."""

    allowed: tuple[int, ...]
    quota: float | None

    @property
    def count(self) -> int:
        """Whole cores that may be busy at once; at least one."""
        if self.quota is None:
            return len(self.allowed)
        return max(1, min(len(self.allowed), math.floor(self.quota)))

    def share(self, worker: int, workers: int) -> tuple[int, ...] | None:
        """The cores one of several workers is pinned to, or ``None`` to leave it unpinned.

        Under a quota smaller than the allowed set any core will do and others may be less busy; with more
        workers than cores they have to take turns anyway.
        """
        if workers > len(self.allowed) or self.count < len(self.allowed):
            return None
        each, extra = divmod(len(self.allowed), workers)
        first = worker * each + min(worker, extra)
        return self.allowed[first : first + each + (worker < extra)]

    def threads(self, workers: int) -> int:
        return max(1, self.count // workers)


def cores() -> Cores:
    """Cores after affinity and cgroup limits."""
    if hasattr(os, "sched_getaffinity"):
        allowed = tuple(sorted(os.sched_getaffinity(0)))
    else:
        allowed = tuple(range(os.cpu_count() or 1))
    return Cores(allowed, cpu_quota(cgroup_folders()))


def cpu_quota(folders: Iterable[Path]) -> float | None:
    """The number of cores that the tightest of these cgroups allows, if any sets a limit."""
    quotas = []
    for folder in folders:
        limit = _read(folder / "cpu.max").split()
        if not limit:
            limit = [_read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")]
        if all(number.isdigit() for number in limit):
            quotas.append(int(limit[0]) / int(limit[1]))
    return min(quotas, default=None)


def memory_limit(folders: Iterable[Path]) -> int | None:
    """The bytes that the tightest of these cgroups allows, if any sets a limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    limits = [_read(folder / name) for folder in folders for name in names]
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)


def cgroup_folders(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """The cgroups this process is in, v2 or v1, each with its ancestors."""
    folders = [root]
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        base = root / controllers
        own = base / path.lstrip("/")
        folders += [folder for folder in (own, *own.parents) if base in (folder, *folder.parents)]
    return folders


def memory_bytes() -> int:
    """Memory this process may use: the machine's, or less if a cgroup says so."""
    total = int(psutil.virtual_memory().total)
    limit = memory_limit(cgroup_folders())
    return total if limit is None else min(total, limit)


def available_memory_bytes() -> int:
    return min(memory_bytes(), int(psutil.virtual_memory().available))


def cpu_flags() -> frozenset[str]:
    """The instruction sets that the processor names, in the kernel's words."""
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(found.partition(":")[2].split())


def has_bf16() -> bool:
    """Whether bf16 arithmetic is in hardware; without it, it is hundreds of times slower."""
    return bool(cpu_flags() & {"avx512_bf16", "amx_bf16", "bf16"})


def has_vnni() -> bool:
    """Whether int8 products add up without overflowing on the way."""
    return bool(cpu_flags() & {"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})


def thread_settings(threads: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Thread variables for a worker; those the user has set are left alone."""
    return {name: str(threads) for name in THREAD_VARIABLES if not set_by_user(name, environment)}


def user_pins(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the user has taken pinning, or the number of threads, into their own hands."""
    return any(set_by_user(name, environment) for name in (*PINNING_VARIABLES, *THREAD_VARIABLES))


def worker_variables(threads: int, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """All thread variables for a worker that does not inherit ours: the user's own, else this number."""
    return {name: environment.get(name, "") for name in THREAD_VARIABLES} | thread_settings(threads, environment)


def set_by_user(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable is there, and not because Seamline has put it there."""
    return name in environment and name not in environment.get(OUR_VARIABLES, "").split(",")


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this process with these on top: to read, or for a process that it starts."""
    return {**os.environ, **(variables or {})}


@contextlib.contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables for a while, and what was there before afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
