"""tcmalloc and jemalloc, found where systems keep them and brought in by ``LD_PRELOAD``."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from seamline.core import machine
from seamline.core.errors import UnavailableError
from seamline.nano.machine.allocator import brings_allocator
from seamline.nano.machine.setting import Setting

_FILES = {"tcmalloc": ("libtcmalloc_minimal.so*", "libtcmalloc.so*"), "jemalloc": ("libjemalloc.so*",)}
_PACKAGES = {"tcmalloc": "libtcmalloc-minimal4", "jemalloc": "libjemalloc2"}
_OPTIONS = {
    "jemalloc": Setting("MALLOC_CONF", "dirty_decay_ms:-1,muzzy_decay_ms:-1", "jemalloc keeps the memory that is freed")
}


def preload_settings(name: str, environment: Mapping[str, str] = os.environ) -> Iterator[Setting]:
    """What brings this allocator into a program that starts with these variables.

    A library that the user preloads is kept; another allocator among them is an error, since only one can be.
    """
    theirs = environment.get("LD_PRELOAD", "")
    present = brings_allocator(theirs)
    if present not in (None, name):
        raise ValueError(f"LD_PRELOAD brings {present} already; unset LD_PRELOAD to run with {name}")
    if present is None:
        library = str(find_library(name, library_folders(environment)))
        together = ":".join(filter(None, (theirs, library)))
        yield Setting("LD_PRELOAD", together, f"{name} instead of glibc's malloc")
    option = _OPTIONS.get(name)
    if option is not None and not machine.set_by_user(option.name, environment):
        yield option


def find_library(name: str, folders: Sequence[Path]) -> Path:
    """The allocator's shared library; the first folder that has it counts."""
    for folder in folders:
        for pattern in _FILES[name]:
            found = sorted(folder.glob(pattern))
            if found:
                return found[0]
    raise UnavailableError(f"{name} is not on this machine; apt-get install {_PACKAGES[name]}")


def library_folders(environment: Mapping[str, str] = os.environ) -> list[Path]:
    """Where systems, conda and the ray wheel keep shared libraries."""
    named = [Path(folder) for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    usual = [Path(sys.prefix, "lib"), Path("/usr/local/lib")]
    usual += [Path(root, part) for root in ("/usr", "/") for part in (f"lib/{multiarch}", "lib64", "lib")]
    return [*named, *usual, *_inside_ray()]


def _inside_ray() -> list[Path]:
    spec = importlib.util.find_spec("ray")
    return [Path(folder, "core") for folder in (spec.submodule_search_locations or [])] if spec else []
