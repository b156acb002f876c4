"""The ``seamline`` command."""

from seamline.cli.main import main

__all__ = ["main"]
