"""How long a run of two workers stands still when one is killed, by the workers' own notes of when they did which step.

Targets, from the kill to the first new step:
local                    the others stay, and another joins them: <= 3 s
local[2]                 Spark's tasks start again in its executor: <= 1.5 x from ``fit`` to the first step in the same
                         session
standalone, an executor  Spark starts another executor first: <= 1.5 x from the program's launch to its first step
The time to start, with which it is compared, is that of the same program.
"""

import argparse
import sys

from benchmarks.measure import interleaved, load

LIMIT_S, LIMIT = 3.0, 1.5
CASES = {
    "local": ("worker", None),
    "local[2]": ("worker", "fit_s"),
    "standalone": ("executor", "program_s"),
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--modes", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args(arguments)
    program = [sys.executable, "benchmarks/programs/seamline_recovery.py"]
    results = interleaved({mode: [*program, mode, CASES[mode][0]] for mode in options.modes}, options.repeats)
    for mode, runs in results.items():
        victim, start = CASES[mode]
        back_s = min(run["back_s"] for run in runs)
        fit_s = min(run["fit_s"] for run in runs)
        figure, limit, words = back_s, LIMIT_S, "s"
        if start is not None:
            start_s = min(run[start] for run in runs)
            figure, limit, words = back_s / start_s, LIMIT, f"x a start, {start_s:.2f} s"
        verdict = "reached" if figure <= limit else "MISSED"
        what = f"{mode}, a killed {victim}"
        print(f"{what:>30} {back_s:7.2f} s (fit alone {fit_s:.2f} s): {figure:.2f} {words}; <= {limit:g} {verdict}")
    print(f"best of {options.repeats}; {load()}")


if __name__ == "__main__":
    main()
