"""Run every benchmark, one after the other."""

from benchmarks import overhead

overhead.main()
