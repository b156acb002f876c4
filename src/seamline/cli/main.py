"""Commands and their options; the work is done elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from seamline import __version__

if TYPE_CHECKING:
    from seamline.nano.machine import Malloc

MALLOC = click.option(
    "--malloc",
    type=click.Choice(["glibc", "tcmalloc", "jemalloc", "system"]),
    default="glibc",
    show_default=True,
    help="Memory from glibc, tuned; from a library that is preloaded; or from the system as it is.",
)
PIN = click.option("--pin", is_flag=True, help="Keep each thread on its core; for programs of one process.")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Make AI programs fast on this machine, and run them on a cluster unchanged."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@main.command()
@click.argument("target")
@click.option("--input-shape", "shapes", multiple=True, help="One for each input: 1x3x224x224, or 1x128:int.")
@click.option("--include", "includes", multiple=True, help="Only these plans, runtimes or precisions; * is allowed.")
@click.option("--save", help="Save the fastest model to this folder.")
def optimize(target: str, shapes: tuple[str, ...], includes: tuple[str, ...], save: str | None) -> None:
    """Find the fastest way to serve TARGET: a file model.onnx, or package.module:make_model."""
    from seamline.cli.optimize import optimize_command

    optimize_command(target, shapes, includes, save)


@main.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@MALLOC
@PIN
@click.option("-m", "module", is_flag=True, help="PROGRAM is a module, as in python -m.")
@click.argument("program")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(malloc: Malloc, pin: bool, module: bool, program: str, arguments: tuple[str, ...]) -> None:
    """Run PROGRAM as python would, with the threads and the allocator that this machine wants."""
    from seamline.cli.run import run_command

    run_command([*(["-m"] if module else []), program, *arguments], malloc, pin)


@main.command()
@MALLOC
@PIN
def env(malloc: Malloc, pin: bool) -> None:
    """Print the same settings for a shell: source <(seamline env)."""
    from seamline.cli.env import env_command

    env_command(malloc, pin)


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For machines: print JSON.")
@click.option("--start", is_flag=True, help="Start every engine too; Java and Ray take a while.")
def doctor(as_json: bool, start: bool) -> None:
    """Say what this machine offers, what is installed, and how to get what is missing."""
    from seamline.cli.doctor import examine, show

    findings = examine(start)
    if as_json:
        click.echo(json.dumps(findings, indent=2))
    else:
        show(findings)
