"""Reading tables in tests: opened, read whole and closed again."""

import contextlib

import numpy as np

from seamline.core import registry
from seamline.core.shards import Columns, Reading, put_away

SMALL = 6000
"""Memory that makes a table of a few hundred rows be read in several windows."""


@contextlib.contextmanager
def opened(data, workers=1, features=("x",), labels=None, na=None, categories=None, **reading):
    """The shards of a table; what was written aside for them is removed in the end."""
    columns = Columns(features=list(features), labels=labels and list(labels), na=na, categories=categories or {})
    shards = registry.shards(data, columns)
    try:
        yield shards.split(workers, Reading(**{"batch_size": 16, **reading}))
    finally:
        put_away(shards)


def values(data, features=("x",), **options):
    """All inputs, in the order of the rows, as one worker reads them."""
    with opened(data, 1, features, **options) as (shard,):
        parts = [batch.inputs for batch in shard.batches(0)]
    if isinstance(parts[0], tuple):
        return tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return np.concatenate(parts)


def batches(data, workers=1, epoch=0, **options):
    """Each batch as all workers together read it."""
    with opened(data, workers, **options) as shards:
        together = []
        for parts in zip(*(shard.batches(epoch) for shard in shards), strict=True):
            assert sum(part.rows for part in parts) == parts[0].batch_rows
            together.append(np.concatenate([part.inputs[: part.rows] for part in parts]))
        return together
