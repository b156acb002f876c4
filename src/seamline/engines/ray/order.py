"""The command that runs a worker of Ray: ``order.py DOOR PYTHON SCRIPT ...`` has it forked by the nursery at the door.

It lives as long as the fork does. Where nobody opens, it becomes what Ray would have started. It is started for every
worker, without site packages, so it imports hardly anything.
"""

import os
import socket
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))

from seamline.core.fork_order import CODE, exactly, send, surroundings


def main() -> None:
    door, python, *arguments = sys.argv[1:]
    ours, theirs = socket.socketpair()
    order = {
        "module": "seamline.engines.ray.forked",
        "settings": {"arguments": arguments},
        "fds": ["status", "stdout", "stderr"],
        **surroundings(),
    }
    try:
        with socket.socket(socket.AF_UNIX) as nursery, theirs:
            nursery.connect(door)
            send(nursery, order, [theirs.fileno(), 1, 2])
        exactly(ours, CODE.size)  # the number of the fork
    except (EOFError, OSError):
        os.execv(python, [python, *arguments])
    code = ours.recv(CODE.size, socket.MSG_WAITALL)
    sys.exit(abs(CODE.unpack(code)[0]) if code else 1)


if __name__ == "__main__":
    main()
