"""A process that starts others, one for each line it reads, and ends them all when nobody writes any more."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path


def main(folder: str) -> None:
    """Each line of the input is a command and the file for what it says; the answer is its process id.

    The input ends with the process that writes it, however that happens; then the processes and ``folder`` go.
    """
    for line in sys.stdin:
        order = json.loads(line)
        with Path(order["log"]).open("ab") as log:
            process = subprocess.Popen(order["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        print(process.pid, flush=True)
    while others := _others():
        for pid in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(0, 0)
    shutil.rmtree(folder, ignore_errors=True)


def _others() -> list[int]:
    """The living processes of this group, those that its members have started included, but not this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended
                state, _, group = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(group) == os.getpgrp() and state != "Z":
                    found.append(int(entry.name))
    return found


if __name__ == "__main__":
    main(sys.argv[1])
