"""One CSV file to pandas frames: Seamline's reader beside ``pandas.read_csv``.

Targets: not slower than pandas on one core, and faster with more. Both sides read the same file, which the page cache
holds, and take turns; the shortest time counts. In this process it is that of the processor, so that others on the
machine count less, and that of the clock, where pandas' threads count on both sides. In other processes it is that of
the clock until all shards are there, beside one process and beside pandas, whose threads share memory and need no copy;
a busy machine shows no gain. Neither side gives memory back to the system: whether glibc does so depends on what lay
where before, and taking it again costs up to a third of the time.
"""

import argparse
import csv
import ctypes
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import load
from seamline.core import machine
from seamline.orca import init_orca_context
from seamline.orca.data import read_csv

KINDS = ("numbers", "mixed", "quoted")
TRIM_THRESHOLD, MMAP_MAX = (-1, 2**31 - 1), (-4, 0)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=powers_of_two(machine.cores().count))
    options = parser.parse_args(arguments)
    keep_memory()
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = Path(folder) / f"{kind}.csv"
            write(path, kind, options.rows)
            print(f"{kind}, {path.stat().st_size / 1e6:.0f} MB")
            compare_here(path, options.turns)
            for cores in options.cores:
                compare_clocks(path, options.turns, cores)
    print(f"{options.turns} turns, {options.rows} rows; {load()}")


def powers_of_two(largest):
    """2, 4, 8 and so on, as far as there are cores."""
    return [2**power for power in range(1, largest.bit_length()) if 2**power <= largest]


def keep_memory():
    """Let this process, and those that it starts, give no memory back."""
    for setting in (TRIM_THRESHOLD, MMAP_MAX):
        ctypes.CDLL(None).mallopt(*setting)
    os.environ.update({"MALLOC_TRIM_THRESHOLD_": str(TRIM_THRESHOLD[1]), "MALLOC_MMAP_MAX_": str(MMAP_MAX[1])})


def write(path, kind, rows):
    """Numbers alone, or with texts and dates, or with texts that hold commas and line ends."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{i}": draw.normal(size=rows).round(4) for i in range(4)})
    frame["n"] = draw.integers(0, 10**6, rows)
    if kind != "numbers":
        frame["city"] = draw.choice(["Berlin", "Köln", "São Paulo", "New York"], rows)
        frame["day"] = draw.choice(pd.date_range("2020-01-01", periods=365).strftime("%Y-%m-%d"), rows)
    if kind == "quoted":
        frame["note"] = draw.choice(['say "yes", or\nno', "plain", "one, two"], rows)
    frame.to_csv(path, index=False, quoting=csv.QUOTE_MINIMAL)


def compare_here(path, turns):
    sides = {"pandas": lambda: pd.read_csv(path), "seamline": lambda: read_csv(path, num_shards=1).collect()}
    by_processor, by_clock = (
        best["pandas"] / best["seamline"]
        for best in (take_turns(sides, turns, clock) for clock in (time.process_time, time.perf_counter))
    )
    print(f"   here   : {by_processor:5.2f} x pandas by processor time (target: 1.00), {by_clock:5.2f} x by the clock")


def compare_clocks(path, turns, cores):
    with init_orca_context("local", cores=cores):
        sides = {
            "pandas": lambda: pd.read_csv(path),
            "one": lambda: read_csv(path, num_shards=1),
            "several": lambda: read_csv(path, num_shards=cores),
        }
        for read in sides.values():
            read()  # the processes are there
        best = take_turns(sides, turns, time.perf_counter)
    of_one, of_pandas = (best[name] / best["several"] for name in ("one", "pandas"))
    print(f"  {cores:2} cores: {of_one:5.2f} x one core (target: > 1.00), {of_pandas:5.2f} x pandas, by the clock")


def take_turns(sides, turns, clock):
    """The shortest time of each side."""
    times = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides) if turn % 2 == 0 else list(reversed(sides)):
            times[name].append(timed(sides[name], clock))
    return {name: min(taken) for name, taken in times.items()}


def timed(work, clock):
    start = clock()
    work()
    return clock() - start


if __name__ == "__main__":
    main()
