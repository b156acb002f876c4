"""The command that runs a worker of Ray: ``order.py DOOR PYTHON SCRIPT ...`` has it forked by the nursery at the door.

It lives as long as the fork does. Where nobody opens, it becomes what Ray would have started. It runs without site
packages, because it is started for every worker, so it knows the standard library alone.
"""

import json
import os
import socket
import struct
import sys


def main() -> None:
    door, python, *arguments = sys.argv[1:]
    ours, theirs = socket.socketpair()
    order = {
        "module": "seamline.engines.ray.forked",
        "settings": {"arguments": arguments},
        "fds": ["status", "stdout", "stderr"],
        "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ),
    }
    body = json.dumps(order).encode()
    try:
        with socket.socket(socket.AF_UNIX) as nursery, theirs:
            nursery.connect(door)
            socket.send_fds(nursery, [struct.pack("!I", len(body))], [theirs.fileno(), 1, 2])
            nursery.sendall(body)
        forked = ours.recv(4, socket.MSG_WAITALL)
    except OSError:
        forked = b""
    if not forked:
        os.execv(python, [python, *arguments])
    code = ours.recv(4, socket.MSG_WAITALL)
    sys.exit(abs(struct.unpack("!i", code)[0]) if code else 1)


if __name__ == "__main__":
    main()
