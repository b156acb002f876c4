"""Run every benchmark, one after the other; each takes options of its own when it is run alone."""

from benchmarks import inference, overhead

overhead.main([])
inference.main(["--quick"])
