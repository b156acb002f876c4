"""The guard of a family of processes: it starts them, one for each line it reads, and ends them when nobody writes.

It imports nothing of ours, so that it starts at once and wherever Python does.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LOOK_EVERY_S = 0.02


def main(folder: str) -> None:
    """Each line of the input is a command and the file for what it says; the answer is its process id.

    The input ends with the process that writes it, however that happens; then the family and ``folder`` go.
    """
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whose parent has ended is a child of ours, and is found
    for line in sys.stdin:
        order = json.loads(line)
        with Path(order["log"]).open("ab") as log:
            process = subprocess.Popen(
                order["command"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: system.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        print(process.pid, flush=True)
    while family := _descendants():
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)
    shutil.rmtree(folder, ignore_errors=True)


def _descendants() -> list[int]:
    """The living processes below this one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    children.setdefault(int(parent), []).append(int(entry.name))
    found = [os.getpid()]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


if __name__ == "__main__":
    main(sys.argv[1])
