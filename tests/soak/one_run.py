"""One disturbed run with all that must hold afterwards."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.core.bucket import Bucket
from tests.engines.inventory import Inventory

ROOT = Path(__file__).parents[2]
STARTS_AT_MOST, START_S, RUN_S, ENDED_WITHIN_S = 3, 90.0, 180.0, 10.0


class OneRun:
    """Starts drivers until one has ended well, disturbs them, and looks at what is left."""

    def __init__(self, mode, disturbance):
        self.mode, self.disturbance = mode, disturbance
        self.folder = Path(tempfile.mkdtemp(prefix="soak-", dir="/var/tmp"))
        self.notes = self.folder / "notes"
        self.notes.mkdir()
        self.inventory = Inventory(but=self.folder)
        self.bucket = Bucket(self.folder / "objects") if disturbance.place == "bucket" else None
        self.model_dir = f"{self.bucket.url}/mine" if self.bucket else str(self.folder / "mine")
        self.starts = self.restarts = 0
        self.result = None
        self.struck = False

    def go(self, expected):
        """What is wrong in the end, in words; nothing if all is well."""
        try:
            return list(self._problems(expected))
        except subprocess.TimeoutExpired:
            return [f"no end after {RUN_S:.0f} s: {self._last_words()}"]
        finally:
            self.inventory.clean()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _problems(self, expected):
        while not (self.notes / "learned").exists():
            if self.starts == STARTS_AT_MOST:
                yield f"no driver ended well: {self._last_words()}"
                return
            self._drive()
        self.result = (self.notes / "learned").read_text()
        if expected not in (None, self.result):
            yield "other weights than the undisturbed run"
        if self.restarts == 0 and self.disturbance.faults:
            yield "no fault struck"
        yield from (f"left behind: {each}" for each in self.inventory.left(ENDED_WITHIN_S))
        yield from (f"left in the model's place: {each}" for each in self._half_written())

    def _drive(self):
        """One driver, from its start to its end."""
        wish = {"mode": self.mode, "model_dir": self.model_dir, "notes": str(self.notes)}
        wish["faults"] = self.disturbance.faults
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        variables = {**self.inventory.variables, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "compiled")  # torch keeps that for the next program
        self.starts += 1
        before = set(self.notes.glob("*.worker"))
        with (self.folder / "said").open("w") as said:
            command = [sys.executable, "-m", "tests.soak.program", json.dumps(wish)]
            driver = subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=said, stderr=said, start_new_session=True
            )
        try:
            workers = self._wait_for_workers(driver, before)
            self.inventory.take()
            if self.disturbance.victim is not None and not self.struck and workers:
                self._strike(driver, workers)
            driver.wait(RUN_S)
        finally:
            driver.kill()
            driver.wait()
        said = (self.folder / "said").read_text()
        self.restarts += sum(map(said.count, ("the run starts again", "another takes its place")))

    def _wait_for_workers(self, driver, before):
        """The processes of both workers by rank, once they train; none if the driver has ended before that."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and driver.poll() is None:
            notes = {
                int(note.stem.partition("-")[2]): note for note in sorted(set(self.notes.glob("*.worker")) - before)
            }
            if len(notes) == 2:
                return {rank: int(note.read_text()) for rank, note in notes.items()}
            time.sleep(0.02)
        return {}

    def _strike(self, driver, workers):
        self.struck = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.wait(self.disturbance.after_s)
        victim = driver.pid if self.disturbance.victim == "driver" else workers[self.disturbance.rank]
        with contextlib.suppress(ProcessLookupError):  # the run was faster
            os.kill(victim, signal.SIGKILL)

    def _half_written(self):
        if self.bucket is not None:
            steps = {key.rpartition("/")[0] for key in self.bucket.objects()}
            whole = {key.rpartition("/")[0] for key in self.bucket.objects() if key.endswith("/seamline.json")}
            begun = [key for key in self.bucket.objects() if key.endswith(".begun")]
            return [*sorted(step for step in steps if not any(step.startswith(each) for each in whole)), *begun]
        return [str(path) for kind in (".writing-*", ".replaced-*") for path in Path(self.model_dir).rglob(kind)]

    def _last_words(self):
        lines = (self.folder / "said").read_text().strip().splitlines()
        return lines[-1] if lines else "it said nothing"
