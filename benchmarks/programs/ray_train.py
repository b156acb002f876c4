"""The DDP loop, started by Ray Train on a Ray of two CPUs."""

import json
import sys
import tempfile
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def work(config):
    sys.path[:] = config["path"]
    from benchmarks.programs.ddp_loop import train

    watch = train(config["name"])
    if watch is not None:
        Path(config["file"]).write_text(json.dumps(watch.ends))


def main(name):
    from benchmarks.programs.workload import Stopwatch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ends.json"
        ray.init(
            address="local", num_cpus=3, include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False
        )
        TorchTrainer(
            work,
            train_loop_config={"name": name, "path": sys.path, "file": str(file)},
            torch_config=TorchConfig(backend="gloo"),
            scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"CPU": 1}),
            run_config=RunConfig(storage_path=folder),
        ).fit()
        watch = Stopwatch()
        watch.ends = json.loads(file.read_text())
        watch.report()
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
