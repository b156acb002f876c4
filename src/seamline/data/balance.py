"""Dividing a batch among workers, so that all take the same number of steps and every row counts once."""

from __future__ import annotations


def share(rows: int, worker: int, workers: int) -> tuple[int, int]:
    """The half-open range of a batch's rows that one worker computes.

    Shares differ by one row at most, earlier workers have the larger ones, and together they are the batch.
    A short batch may leave the last workers without a row; they still take part in the step.
    """
    each, extra = divmod(rows, workers)
    start = worker * each + min(worker, extra)
    return start, start + each + (worker < extra)
