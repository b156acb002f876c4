"""``seamline env``: this machine's settings as lines for a shell."""

from __future__ import annotations

import shlex

import click

from seamline.cli.chosen import chosen_settings
from seamline.nano.machine import Malloc


def env_command(malloc: Malloc, pin: bool) -> None:
    """Print an ``export`` for each setting that the user has not made, each with its reason."""
    for setting in chosen_settings(malloc, pin):
        click.echo(f"export {setting.name}={shlex.quote(setting.value)}  # {setting.why}")
