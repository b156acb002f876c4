"""What a fork does that is to be a worker of Ray: what Ray's own script does."""

from __future__ import annotations

import json
import runpy
import sys


def main() -> None:
    """Entry point; the settings come as JSON on the command line."""
    sys.argv[:] = json.loads(sys.argv[1])["arguments"]
    runpy.run_path(sys.argv[0], run_name="__main__")
