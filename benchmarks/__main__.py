"""Run every benchmark, one after the other; each takes options of its own when it is run alone."""

from benchmarks import (
    allocator,
    data,
    engines,
    estimator,
    images,
    inference,
    overhead,
    readers,
    recovery,
    training,
    xshards,
)

overhead.main([])
inference.main(["--quick"])
images.main([])
allocator.main([])
training.main([])
engines.main([])
estimator.main([])
recovery.main([])
data.main([])
readers.main([])
xshards.main([])
