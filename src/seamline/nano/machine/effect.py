"""What tuning the allocator changes on this machine, measured in a second or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamline.nano.machine.setting import Setting

_BLOCK_MB = 64
_BLOCKS = 10
# As in the forward pass of a network: large blocks, written once and freed. It needs nothing but Python.
_LOOP = f"""
import json, resource, time
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before, begin = faults(), time.perf_counter()
for _ in range({_BLOCKS}): bytearray({_BLOCK_MB} * 2**20)
print(json.dumps([faults() - before, time.perf_counter() - begin]))
"""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop that allocates and frees large blocks: how many page faults it met, and how long it took."""

    page_faults: int
    seconds: float


def allocation_loop(settings: Sequence[Setting] = (), environment: Mapping[str, str] = os.environ) -> Loop:
    """Run the loop in a fresh Python with these settings."""
    variables = {**environment, **{setting.name: setting.value for setting in settings}}
    # Isolated and without site packages: it starts in a few milliseconds.
    command = [sys.executable, "-I", "-S", "-c", _LOOP]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=30, check=True)
    return Loop(*json.loads(done.stdout))
