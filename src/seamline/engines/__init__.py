"""Places where workers run, one file or folder each."""
