"""This machine's cores and memory, put to use: threads, pinning and the allocator.

``seamline run script.py`` starts a program with ``settings``; ``tune_allocator`` does in a running process what can
still be done there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

from seamline.core.machine import OUR_VARIABLES
from seamline.nano.machine.allocator import AllocatorTuning, current_allocator, glibc_settings, tune_allocator
from seamline.nano.machine.preload import preload_settings
from seamline.nano.machine.setting import Setting
from seamline.nano.machine.threads import pinning_settings, thread_settings

__all__ = ["AllocatorTuning", "Malloc", "Setting", "current_allocator", "settings", "tune_allocator"]

Malloc = Literal["glibc", "tcmalloc", "jemalloc", "system"]


def settings(
    malloc: Malloc = "glibc", pin: bool = False, environment: Mapping[str, str] = os.environ
) -> tuple[Setting, ...]:
    """The variables that a program should start with here and that are not so yet; none that the user has set.

    ``malloc`` chooses the allocator: glibc's, tuned; one that is preloaded; or the system's as it is. ``pin`` keeps
    threads on their cores, in programs that compute in one process.
    """
    chosen = [*thread_settings(environment)]
    if malloc == "glibc":
        chosen += glibc_settings(environment)
    elif malloc != "system":
        chosen += preload_settings(malloc, environment)
    chosen = [setting for setting in chosen if environment.get(setting.name) != setting.value]
    if chosen:
        before = [name for name in environment.get(OUR_VARIABLES, "").split(",") if name]
        ours = ",".join(dict.fromkeys([*before, *(setting.name for setting in chosen)]))
        chosen.append(Setting(OUR_VARIABLES, ours, "so that workers take their share of the cores all the same"))
    if pin:  # who asks for pinning has made it their own: it is not among our variables
        chosen += pinning_settings(environment)
    return tuple(chosen)
