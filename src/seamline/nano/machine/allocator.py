"""glibc's malloc, told to keep the memory that a program is about to ask for again.

As it comes, it gives each large block back to the system and has it faulted in again, page by page: millions of page
faults in an inference loop. The price of keeping is that a process stays as large as it has ever been.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seamline.core import machine
from seamline.nano.machine.setting import Setting

OTHER_ALLOCATORS = ("tcmalloc", "jemalloc", "mimalloc", "tbbmalloc_proxy")
_NEVER = 2**31 - 1
_TOP_PAD = 256 * 2**20
_TOP_PAD_SHARE = 64
"""The pad is at most this fraction of the memory that we may use."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One of glibc's parameters: its number for ``mallopt``, the variable that does the same, and its value."""

    number: int
    variable: str
    value: int
    why: str


@dataclass(frozen=True, slots=True)
class AllocatorTuning:
    """What ``tune_allocator`` did: the parameters it set, or why it left the allocator alone."""

    applied: bool
    why: str
    parameters: tuple[Parameter, ...] = ()


def tune_allocator(environment: Mapping[str, str] = os.environ) -> AllocatorTuning:
    """Let this process keep the memory it frees; call it before the work begins, as often as you like.

    It does nothing where malloc is not glibc's, or where the user has tuned it by a variable.
    """
    obstacle = _obstacle(environment)
    return AllocatorTuning(False, obstacle) if obstacle is not None else _tuned()


def glibc_settings(environment: Mapping[str, str] = os.environ) -> Iterator[Setting]:
    """The same as variables, which hold from a program's first instruction and for its children too."""
    if _obstacle(environment) is None:
        for parameter in parameters():
            yield Setting(parameter.variable, str(parameter.value), parameter.why)


def parameters(memory_bytes: int | None = None) -> tuple[Parameter, ...]:
    """What glibc is told on a machine, or in a container, with this much memory."""
    memory = machine.memory_bytes() if memory_bytes is None else memory_bytes
    pad = min(_TOP_PAD, memory // _TOP_PAD_SHARE)
    return (
        Parameter(-4, "MALLOC_MMAP_MAX_", 0, "large blocks come from the heap, whose pages are reused"),
        Parameter(-1, "MALLOC_TRIM_THRESHOLD_", _NEVER, "freed memory stays with the process"),
        Parameter(-2, "MALLOC_TOP_PAD_", pad, f"the heap grows by {pad >> 20} MB at a time"),
    )


def current_allocator() -> str:
    """The allocator of this process: one that was preloaded, or the system's."""
    file = _malloc_file()
    return brings_allocator(file) or ("glibc" if _is_glibc(file) else "the system's")


def brings_allocator(preloaded: str) -> str | None:
    """The allocator that a value of ``LD_PRELOAD``, or the name of a library, speaks of; if it does of one."""
    return next((name for name in OTHER_ALLOCATORS if name in preloaded), None)


def _obstacle(environment: Mapping[str, str]) -> str | None:
    """Why glibc's malloc is not ours to tune."""
    file = _malloc_file()
    other = brings_allocator(environment.get("LD_PRELOAD", "")) or brings_allocator(file)
    if other is not None:
        return f"{other} is there instead of glibc's malloc"
    if not _is_glibc(file):
        return "malloc is not glibc's"
    for name in environment:
        if name == "GLIBC_TUNABLES" or (name.startswith("MALLOC_") and machine.set_by_user(name, environment)):
            return f"{name} is set"
    return None


@functools.cache
def _tuned() -> AllocatorTuning:
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    wanted = parameters()
    refused = [parameter.variable for parameter in wanted if mallopt(parameter.number, parameter.value) != 1]
    if refused:
        return AllocatorTuning(False, f"glibc refused {', '.join(refused)}")
    return AllocatorTuning(True, "glibc keeps freed memory", wanted)


def _is_glibc(malloc_file: str) -> bool:
    return malloc_file.startswith("libc") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


def _malloc_file() -> str:
    """The name of the library that ``malloc`` comes from, where the system says so.

    That one is loaded tells nothing: OpenVINO brings tbbmalloc, which replaces only its own memory.
    """
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return ""
    address = ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value or 0
    for line in maps.read_text().splitlines():
        span, *_, path = line.split(maxsplit=5)
        low, high = (int(end, 16) for end in span.split("-"))
        if low <= address < high:
            return Path(path).name
    return ""
