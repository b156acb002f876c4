"""Adapters: what each worker reads, one file for each kind of data."""
