"""A hand-written DDP loop, as the torch documentation shows it, for whoever has started the processes."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.programs.workload import MODELS, Stopwatch, make_model, make_optimizer, make_rows


def train(name):
    """What the first process has measured; ``None`` in the others. The process group is there already."""
    rank, size = dist.get_rank(), dist.get_world_size()
    x, y = make_rows(name)
    model = DistributedDataParallel(make_model(name))
    optimizer, loss_function = make_optimizer(model), nn.CrossEntropyLoss()
    batch = MODELS[name]["batch"]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    watch, total = Stopwatch(), 0.0
    share = batch // size
    for first in range(0, len(x), batch):
        mine = order[first + rank * share : first + (rank + 1) * share]
        optimizer.zero_grad()
        loss = loss_function(model(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        total += loss.item()
        watch.step()
    return watch if rank == 0 else None
