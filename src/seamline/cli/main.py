"""Commands and their options; the work is done elsewhere."""

from __future__ import annotations

import json

import click

from seamline import __version__


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


@main.command()
@click.option("--json", "as_json", is_flag=True, help="For machines: print JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine offers, what is installed, and how to get what is missing."""
    from seamline.cli.doctor import examine, show

    findings = examine()
    if as_json:
        click.echo(json.dumps(findings, indent=2))
    else:
        show(findings)
