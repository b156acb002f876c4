"""What tuning the allocator does to eager ResNet-50 inference in batches of 32: page faults, time and memory.

Targets: at least 10 times fewer page faults, and less processor time for a step, which others on the machine disturb
less than they disturb the clock.
"""

import argparse
import sys

from benchmarks.measure import best_median, interleaved, load
from seamline.core.errors import UnavailableError
from seamline.nano.machine.preload import find_library, library_folders

PROGRAM = "benchmarks/programs/eager_inference.py"


def programs(steps):
    python, command = [sys.executable], [sys.executable, "-m", "seamline.cli", "run"]
    found = {
        "plain": [*python, PROGRAM, steps],
        "tune_allocator": [*python, PROGRAM, steps, "tune_allocator"],
        "seamline run": [*command, PROGRAM, steps],
    }
    for name in ("tcmalloc", "jemalloc"):
        try:
            find_library(name, library_folders())
        except UnavailableError as error:
            print(error)
        else:
            found[name] = [*command, "--malloc", name, PROGRAM, steps]
    return found


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args(arguments)
    results = interleaved(programs(str(options.steps)), options.repeats)
    faults = {name: min(run["page_faults"] for run in runs) for name, runs in results.items()}
    step = {name: 1000 * best_median(runs, "durations") for name, runs in results.items()}
    work = {name: 1000 * min(run["cpu_s"] for run in runs) for name, runs in results.items()}
    memory = {name: max(run["peak_gb"] for run in runs) for name, runs in results.items()}
    print(
        f"{'':>15} {'faults/step':>12} {'fewer':>10} {'CPU, ms':>8} {'less':>6} {'step, ms':>9} {'faster':>7} {'GB':>5}"
    )
    for name in results:
        fewer = faults["plain"] / max(faults[name], 1)
        less, faster = work["plain"] / work[name], step["plain"] / step[name]
        verdict = "" if name == "plain" else "reached" if fewer >= 10 and less > 1 else "MISSED"
        numbers = f"{faults[name]:12,.0f} {fewer:10,.0f} {work[name]:8.0f} {less:6.2f} {step[name]:9.0f} {faster:7.2f}"
        print(f"{name:>15} {numbers} {memory[name]:5.2f}  {verdict}".rstrip())
    print(f"best of {options.repeats} interleaved runs; {load()}")


if __name__ == "__main__":
    main()
