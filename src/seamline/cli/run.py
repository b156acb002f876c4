"""``seamline run``: a program, started as Python would start it, with this machine's settings."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from seamline.cli.chosen import chosen_settings
from seamline.nano.machine import Malloc


def run_command(command: list[str], malloc: Malloc, pin: bool) -> NoReturn:
    """Become ``python <command>``.

    The process is replaced, so its number, signals, exit code and tracebacks are those of the program, and libraries
    that read the environment only when they are loaded see the settings.
    """
    variables = {setting.name: setting.value for setting in chosen_settings(malloc, pin)}
    os.execve(sys.executable, [sys.executable, *command], {**os.environ, **variables})
