"""Run every benchmark, one after the other; each takes options of its own when it is run alone."""

from benchmarks import allocator, images, inference, overhead, training

overhead.main([])
inference.main(["--quick"])
images.main([])
allocator.main([])
training.main([])
