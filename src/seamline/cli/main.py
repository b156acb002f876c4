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
@click.option("--json", "as_json", is_flag=True, help="For machines: print JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine offers, what is installed, and how to get what is missing."""
    from seamline.cli.doctor import examine, show

    findings = examine()
    if as_json:
        click.echo(json.dumps(findings, indent=2))
    else:
        show(findings)
