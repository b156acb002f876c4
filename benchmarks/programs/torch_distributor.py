"""The DDP loop, started by pyspark's TorchDistributor on a Spark of two slots."""

import sys

from pyspark.ml.torch.distributor import TorchDistributor

from seamline.engines.spark.session import session


def work(name, path):
    sys.path[:] = path
    import torch.distributed as dist

    from benchmarks.programs.ddp_loop import train

    dist.init_process_group("gloo")
    watch = train(name)
    dist.destroy_process_group()
    return watch and watch.ends


def main(name):
    from benchmarks.programs.workload import Stopwatch

    spark = session({"spark.master": "local[2]"})
    watch = Stopwatch()
    watch.ends = TorchDistributor(num_processes=2, local_mode=False, use_gpu=False).run(work, name, sys.path)
    watch.report()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
