"""Reading shards in tests: what all workers see of an epoch, put together again."""

import numpy as np

from seamline.core import registry
from seamline.core.shards import Columns, Reading, Unpaired


def split(data, workers, columns=None, **reading):
    return registry.shards(data, columns or Columns()).split(workers, Reading(**reading))


def whole_batches(data, workers, epoch=0, first_step=0, **reading):
    """The inputs of each batch as the workers together read them, in order."""
    shards = split(data, workers, **reading)
    batches = []
    for parts in zip(*(shard.batches(epoch, first_step) for shard in shards), strict=True):
        assert len({part.batch_rows for part in parts}) == 1
        assert sum(part.rows for part in parts) == parts[0].batch_rows
        counted = [_array(part.inputs) for part in parts if part.rows]
        batches.append(np.concatenate(counted))
        assert all(len(_array(part.inputs)) == max(1, part.rows) for part in parts)
    return batches


def _array(inputs):
    return np.asarray(inputs[0] if isinstance(inputs, Unpaired) else inputs)


def assert_same_batches(ours, theirs):
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(one, other)
