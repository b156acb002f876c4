"""Deep-learning libraries that train, one folder each."""
