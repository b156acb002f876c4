"""The settings that a command line asks for, or one sentence on why they cannot be had."""

from __future__ import annotations

import click

from seamline.core.errors import UnavailableError
from seamline.nano import machine
from seamline.nano.machine import Malloc, Setting


def chosen_settings(malloc: Malloc, pin: bool) -> tuple[Setting, ...]:
    try:
        return machine.settings(malloc, pin)
    except (UnavailableError, ValueError) as error:
        raise click.ClickException(str(error)) from error
