"""The DDP loop, started by torchrun."""

import sys

import torch.distributed as dist

from benchmarks.programs.ddp_loop import train

dist.init_process_group("gloo")
watch = train(sys.argv[1])
if watch is not None:
    watch.report()
dist.destroy_process_group()
