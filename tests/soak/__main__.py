"""Train again and again while workers and drivers are killed at random; nothing may be lost, nothing left behind.

After each run: the weights are those of the undisturbed run to the bit, the ledger holds every row once for each epoch,
and no process, port or file is left that was not there before. The exit status is 1 if anything was wrong.
"""

import argparse
import random
import sys
import time

from tests.soak.disturbance import Disturbance
from tests.soak.one_run import OneRun

MODES = {"local": "local", "spark": "local[2]", "ray": "ray"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--engines", nargs="+", choices=MODES, default=["local"])
    parser.add_argument("--seed", type=int, help="repeats what another soak did; it says its own in the first line")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    chance, began = random.Random(seed), time.monotonic()
    print(f"seed {seed}, {options.minutes:g} minutes on {', '.join(options.engines)}", flush=True)
    undisturbed = OneRun("local", Disturbance())
    expected, wrong, runs, restarts = None, 0, 0, 0
    while time.monotonic() - began < 60 * options.minutes:
        name = chance.choice(options.engines) if expected is not None else "local"
        run = undisturbed if expected is None else OneRun(MODES[name], Disturbance.at_random(chance))
        start = time.monotonic()
        problems = run.go(expected)
        runs, restarts, wrong = runs + 1, restarts + run.restarts + run.starts - 1, wrong + bool(problems)
        verdict = "; ".join(problems) or "ok"
        what = "undisturbed" if expected is None else run.disturbance
        print(f"{runs:4d} {name:>6} {time.monotonic() - start:6.1f} s  {what}: {verdict}", flush=True)
        expected = expected or run.result
        if expected is None:
            sys.exit("the undisturbed run failed")
    took_s = time.monotonic() - began
    print(f"{runs} runs in {took_s:.0f} s, {restarts} restarts, {wrong} with something wrong; seed {seed}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
