"""The same training on every engine, beside the peer that starts workers there: torchrun, TorchDistributor, Ray Train.

Targets: a steady step at most 1.03 x torchrun's; time to the first step not worse than the peer's on the same engine.
All peers run one hand-written DDP loop; every program is a process of its own that starts what it needs, two workers,
and they take turns.
"""

import argparse
import sys

from benchmarks.measure import best_median, interleaved, load

PEERS = {"local": "torchrun", "local[2]": "TorchDistributor", "ray": "Ray Train"}


def programs(model):
    ours = [sys.executable, "benchmarks/programs/seamline_fit.py", model, "functions"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return {
        "local": [*ours, "local"],
        "torchrun": [*torchrun, "benchmarks/programs/torchrun_ddp.py", model],
        "local[2]": [*ours, "local[2]"],
        "TorchDistributor": [sys.executable, "-m", "benchmarks.programs.torch_distributor", model],
        "ray": [*ours, "ray"],
        "Ray Train": [sys.executable, "-m", "benchmarks.programs.ray_train", model],
    }


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=["25M"])
    options = parser.parse_args(arguments)
    for model in options.models:
        results = interleaved(programs(model), options.repeats)
        step = {name: 1000 * best_median(runs, "durations") for name, runs in results.items()}
        first = {name: min(run["first_step_s"] for run in runs) for name, runs in results.items()}
        print(f"{model:>6} {'':>18} {'step, ms':>10} {'x torchrun':>11} {'first step, s':>14} {'x peer':>7}")
        for name in results:
            peer = PEERS.get(name)
            ratio = step[name] / step["torchrun"]
            verdict = ""
            if peer is not None:
                beside = first[name] / first[peer]
                verdict = f"{beside:7.2f}  <= 1.03 {word(ratio <= 1.03)}, <= 1 {word(beside <= 1.0)} ({peer})"
            print(f"{'':>6} {name:>18} {step[name]:10.1f} {ratio:11.3f} {first[name]:14.2f} {verdict}", flush=True)
    print(f"best of {options.repeats} interleaved runs; {load()}")


def word(reached):
    return "reached" if reached else "MISSED"


if __name__ == "__main__":
    main()
