"""The AI program of your laptop, made fast on that machine and run unchanged on a cluster."""

__version__ = "0.1.0"
