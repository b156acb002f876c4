"""What Seamline's loop and engine cost beside a hand-written DDP loop under torchrun: 2 workers, CPU, gloo.

Targets: steady step at most 1.03 x torchrun for 25 M parameters and 1.10 x for 1 M; first step at most 1.2 x.
The target for the first step is for the same program, in which the workers make model and optimizer ("functions").
With "instances" the driver makes an optimizer too, for which torch loads its compiler: about a second more.
"""

import argparse
import sys

from benchmarks.measure import best_median, best_quartile, interleaved, load

FORMS = ("functions", "instances")


def programs(model):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ours = {form: [sys.executable, "benchmarks/programs/seamline_fit.py", model, form] for form in FORMS}
    return {**ours, "torchrun": [*torchrun, "benchmarks/programs/torchrun_ddp.py", model]}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args(arguments).repeats
    print(f"{'model':>6} {'recipe of':>10} {'':>15} {'seamline':>9} {'torchrun':>9} {'ratio':>6}  target")
    for model, target in (("1M", 1.10), ("25M", 1.03)):
        results = interleaved(programs(model), repeats)
        median = {name: 1000 * best_median(runs, "durations") for name, runs in results.items()}
        quartile = {name: 1000 * best_quartile(runs, "durations") for name, runs in results.items()}
        first = {name: min(run["first_step_s"] for run in runs) for name, runs in results.items()}
        for form in FORMS:
            show(model, form, "median step, ms", median, target)
            show(model, form, "quartile, ms", quartile, target)
            show(model, form, "first step, s", first, 1.20 if form == "functions" else None)
    print(f"best of {repeats} interleaved runs; {load()}")


def show(model, form, what, value, target):
    ratio = value[form] / value["torchrun"]
    verdict = "" if target is None else f"<= {target:.2f} {'reached' if ratio <= target else 'MISSED'}"
    print(f"{model:>6} {form:>10} {what:>15} {value[form]:9.2f} {value['torchrun']:9.2f} {ratio:6.3f}  {verdict}")


if __name__ == "__main__":
    main()
