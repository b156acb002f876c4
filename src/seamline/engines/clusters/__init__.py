"""What a context opens and closes: one file for each kind of cluster."""
