"""``python -m seamline.cli``, for when the command is not on the path."""

from seamline.cli.main import main

main(prog_name="seamline")
