"""Measuring on machines that others use too: interleaved repeats, ratios, and a word on the load."""

import compileall
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_program(command, **variables):
    """Start a program and read the line of JSON that it prints."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "LAUNCHED": str(time.time()), **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment, cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    line = next(line for line in done.stdout.splitlines() if "RESULT " in line)
    return json.loads(line.partition("RESULT ")[2])


def interleaved(programs, repeats):
    """Results of each program, taken in turns so that noise meets all of them alike."""
    for folder in ("src", "benchmarks"):  # as an installer does, whose packages the others are
        compileall.compile_dir(ROOT / folder, quiet=2)
    results = {name: [] for name in programs}
    for turn in range(repeats):
        names = list(programs) if turn % 2 == 0 else list(reversed(programs))
        for name in names:
            results[name].append(run_program(programs[name]))
    return results


def load():
    return f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} cores"


def best_median(results, field):
    """The smallest of the runs' medians: what a step takes in the run that was disturbed least."""
    return min(statistics.median(result[field]) for result in results)


def best_quartile(results, field):
    """The smallest of the runs' lower quartiles: what a step takes when nobody else is at work."""
    return min(statistics.quantiles(result[field], n=4)[0] for result in results)
