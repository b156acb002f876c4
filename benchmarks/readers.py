"""One CSV file to pandas frames: Seamline's reader beside ``pandas.read_csv``.

Targets: not slower than pandas on one core, and faster with more. Both sides read the same file, which the page cache
holds, and take turns; the shortest time counts. On one core it is that of the processor, so that others on the machine
count less. With more cores it is that of the clock until all shards are there, and a busy machine shows no gain.
Neither side gives memory back to the system: whether glibc does so depends on what lay where before, and taking it
again costs up to a third of the time.
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
    options = parser.parse_args(arguments)
    keep_memory()
    cores = machine.cores().count
    heads = ("file", "MB", "pandas", "one core", "ratio", f"{cores} cores", "ratio")
    print("{:>10} {:>5} {:>9} {:>9} {:>6}  {:>9} {:>6}   (MB/s)".format(*heads))
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            path = Path(folder) / f"{kind}.csv"
            write(path, kind, options.rows)
            compare(path, options.turns, cores)
    print(f"targets: one core >= 1.00; {options.turns} turns, {options.rows} rows; {load()}")


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


def compare(path, turns, cores):
    sides = {"pandas": lambda: pd.read_csv(path), "seamline": lambda: read_csv(path, num_shards=1).collect()}
    times = {name: [] for name in sides}
    for turn in range(turns):
        for name in list(sides) if turn % 2 == 0 else list(reversed(sides)):
            times[name].append(timed(sides[name], time.process_time))
    clock, several = [], []
    with init_orca_context("local", cores=cores):
        read_csv(path, num_shards=cores)  # the processes are there
        for _ in range(turns):
            clock.append(timed(sides["pandas"], time.perf_counter))
            several.append(timed(lambda: read_csv(path, num_shards=cores), time.perf_counter))
    size = path.stat().st_size / 1e6
    pandas, one = (min(times[name]) for name in sides)
    many, pandas_clock = min(several), min(clock)
    print(
        f"{path.stem:>10} {size:5.0f} {size / pandas:9.1f} {size / one:9.1f} {pandas / one:6.2f}"
        f"  {size / many:9.1f} {pandas_clock / many:6.2f}"
    )


def timed(work, clock):
    start = clock()
    work()
    return clock() - start


if __name__ == "__main__":
    main()
