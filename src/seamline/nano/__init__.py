"""One machine: make a model and its program fast where they are."""
