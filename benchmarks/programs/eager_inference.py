"""Eager inference with ResNet-50 in large batches: many large blocks, allocated and freed.

With ``tune_allocator`` the process tunes its allocator itself, before it does anything else.
"""

import json
import resource
import sys
import time

from seamline.nano.machine import tune_allocator

BATCH = 32
WARM_UP = 2


def main(steps, *how):
    if how == ("tune_allocator",):
        assert tune_allocator().applied
    import torch

    from benchmarks.programs.networks import resnet50

    torch.manual_seed(0)
    model, images = resnet50().eval(), torch.randn(BATCH, 3, 224, 224)
    durations = []
    for step in range(WARM_UP + int(steps)):
        if step == WARM_UP:
            before = resource.getrusage(resource.RUSAGE_SELF)
        begin = time.perf_counter()
        with torch.inference_mode():
            model(images)
        durations.append(time.perf_counter() - begin)
    after = resource.getrusage(resource.RUSAGE_SELF)
    result = {
        "page_faults": (after.ru_minflt - before.ru_minflt) / int(steps),
        "durations": durations[WARM_UP:],
        "cpu_s": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / int(steps),
        "peak_gb": after.ru_maxrss / 2**20,
    }
    print("RESULT " + json.dumps(result))


main(*sys.argv[1:])
