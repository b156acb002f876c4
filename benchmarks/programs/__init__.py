"""The programs that benchmarks start, ours and the peers'; each prints one line of JSON."""
