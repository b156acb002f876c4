"""What a program and everything that it has started hold of this machine, and what of that is left afterwards.

Processes are known by a variable in their environment and by their parents, files and ports by the processes that have
them open. So nothing counts that runs beside the tests, and nothing is overlooked because its parent has ended.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil

MARK = "TESTED_FAMILY"
TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
HOMES = (Path(__file__).parents[2], Path(sys.prefix))
"""Where the project itself and its environment are; that may be in a place for temporary files."""


class Inventory:
    """Give ``variables`` to a program, ``take`` stock while all of it runs, and ask what is ``left`` of that.

    ``mark`` may be another variable that all processes of interest have. Files in the folder ``but`` do not count.
    """

    def __init__(self, but=None):
        self.homes = (*HOMES, but) if but else HOMES
        self.before = {entry for place in TEMPORARY if place.is_dir() for entry in place.iterdir()}
        self.folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))  # short: Ray puts sockets there
        self.mark = (MARK, uuid.uuid4().hex)
        self.variables = {**dict([self.mark]), "TMPDIR": str(self.folder)}
        self.processes, self.files, self.ports = set(), set(), set()

    def take(self):
        """Note what there is now, in addition to what was noted before."""
        self.processes |= self.running()
        listening = listening_sockets()
        for process in self.processes:
            for path in held(process):
                self.ports |= {path} & listening
                self.files |= self.temporary(path)

    def running(self):
        """The processes of the family that run now."""
        marked = {process for process in psutil.process_iter() if self.is_marked(process)}
        for process in list(marked):
            with contextlib.suppress(psutil.Error):
                marked |= set(process.children(recursive=True))
        return marked

    def is_marked(self, process):
        with contextlib.suppress(psutil.Error):
            return self.mark in process.environ().items()
        return False

    def temporary(self, path):
        """A file in a place for such, the folder below that place that it is in, and the lock beside it."""
        path = Path(path)
        place = next((place for place in TEMPORARY if place in path.parents), None)
        ours = any(home in path.parents for home in self.homes) or any(
            part.startswith("pytest-of-") for part in path.parts
        )
        if place is None or ours:
            return set()
        top = place / path.relative_to(place).parts[0]
        return {path, path.with_name(f"{path.name}.lck"), top} - self.before - {self.folder}

    def left(self, within_s):
        """What is still there after so many seconds at the latest, in words."""
        deadline = time.monotonic() + within_s
        while (left := self.still_there()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def still_there(self):
        running = {*self.processes, *self.running()}
        processes = [f"process {words(process)}" for process in running if lives(process)]
        ports = [f"port {port}" for port in self.ports & listening_sockets()]
        files = [str(path) for path in (*self.files, *self.folder.iterdir()) if os.path.lexists(path)]
        return [*processes, *ports, *files]

    def clean(self):
        """End and remove what is left."""
        for process in {*self.processes, *self.running()}:
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def lives(process):
    with contextlib.suppress(psutil.Error):
        running = process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        return running and not is_nursery_of_this_process(process)
    return False


def is_nursery_of_this_process(process):
    """Where workers come from; it stays as long as its driver does, and a program's is noticed when that has ended."""
    return process.ppid() == os.getpid() and is_nursery(process)


def is_nursery(process):
    return "seamline.core.forking" in process.cmdline()


def host():
    """The process that looks after this worker: Ray's node, Spark's Python process, or the driver."""
    settings = json.loads(sys.argv[1]) if sys.argv[1:2] and sys.argv[1].startswith("{") else {}
    number = os.environ.get("RAY_RAYLET_PID") or settings.get("keeper")
    parents = psutil.Process().parents()
    return psutil.Process(int(number)) if number else next(each for each in parents if not is_nursery(each))


def words(process):
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {' '.join(process.cmdline())[:150]}"
    return str(process.pid)


def held(process):
    """Paths and sockets that a process has open or mapped."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry))  # noqa: PTH115
        lines = Path(f"/proc/{process.pid}/maps").read_text().splitlines()
        found |= {words[5] for line in lines if len(words := line.split(maxsplit=5)) == 6}
    return {path for path in found if not path.endswith(" (deleted)")}


def listening_sockets():
    """All sockets of this machine that listen, as a process's folder in ``/proc`` names them."""
    found = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]]
            found |= {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}
    return found
