"""The same rows as every kind of data that an Estimator takes, and where each kind has its predictions afterwards."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from seamline.orca import XShards
from tests.orca.networks import make_rows

ROWS, BATCH = 50, 16
"""Three batches and a rest of two rows."""
X, Y = make_rows(ROWS)
FEATURES = list("abcdef")
NAMES = [None if row % 7 == 0 else f"row {row}" for row in range(ROWS)]
FRAME = pd.DataFrame({"id": range(ROWS), **dict(zip(FEATURES, X.T, strict=True)), "label": Y, "name": NAMES})
"""With columns that no model sees, to know the rows by."""
TABLE = pa.Table.from_pandas(FRAME, preserve_index=False)
PIECES = [TABLE.slice(0, 7), TABLE.slice(7, 0), TABLE.slice(7, 23), TABLE.slice(30)]
"""Parts of different sizes, one of which is empty."""
COLUMNS = {"feature_cols": [FEATURES], "label_cols": ["label"]}


def outputs_alone(answer):
    assert isinstance(answer, np.ndarray)
    return answer


def beside_rows(frame):
    """The predictions of a frame that is otherwise as it was, every row in its place."""
    assert list(frame) == [*FRAME, "prediction"]
    pd.testing.assert_frame_equal(frame[list(FRAME)].reset_index(drop=True), FRAME)
    return np.stack(frame["prediction"])


def beside_shards(answer):
    assert isinstance(answer, XShards)
    assert answer.num_partitions() == 3
    return beside_rows(answer.to_pandas())


def beside_arrays(answer):
    assert isinstance(answer, XShards)
    shards = answer.collect()
    np.testing.assert_array_equal(np.concatenate([shard["x"] for shard in shards]), X)
    return np.concatenate([shard["prediction"] for shard in shards])


def in_spark(answer):
    from pyspark.sql import DataFrame

    assert isinstance(answer, DataFrame)
    return beside_rows(answer.toArrow().to_pandas())


def in_ray(answer):
    import ray.data

    assert isinstance(answer, ray.data.Dataset)
    return beside_rows(blocks_together(answer))


def blocks_together(dataset):
    """The rows of a Ray data set as a frame; its own ``to_pandas`` warns with pandas 3.1."""
    import ray

    return pa.concat_tables(block for block in ray.get(dataset.to_arrow_refs()) if len(block)).to_pandas()


@dataclass(frozen=True, slots=True)
class Kind:
    """How rows become data of a kind, in a folder if it needs one, and how its predictions become arrays."""

    make: Callable[[Path], Any]
    scores: Callable[[Any], Any] = outputs_alone
    columns: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[Any], Any] = lambda data: data
    batch_size: int | None = BATCH

    @property
    def settings(self):
        return {"batch_size": self.batch_size, **self.columns}

    @property
    def settings_to_predict(self):
        return {name: value for name, value in self.settings.items() if name != "label_cols"}


class Rows(Dataset):
    """Rows whose inputs have names."""

    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return {"x": X[row]}, Y[row]


def make_loader(config, batch_size):
    return DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=batch_size, shuffle=True)


def parquet_files(folder):
    for number, piece in enumerate(PIECES):
        pq.write_table(piece, folder / f"{number}.parquet", row_group_size=9)
    return str(folder)


def spark_dataframe(_folder):
    from pyspark.sql import DataFrame, SparkSession

    session = SparkSession.getActiveSession()
    return reduce(DataFrame.union, (session.createDataFrame(piece) for piece in PIECES))


def ray_dataset(_folder):
    import ray.data

    return ray.data.from_arrow(PIECES)


def first(pair):
    return pair[0]


KINDS = {
    "arrays": Kind(lambda _: (X, Y), inputs=first),
    "dicts of tensors": Kind(lambda _: ({"x": torch.from_numpy(X)}, torch.from_numpy(Y)), inputs=first),
    "loader": Kind(lambda _: DataLoader(Rows(), batch_size=BATCH, shuffle=True), batch_size=None),
    "creator": Kind(lambda _: make_loader),
    "pandas": Kind(lambda _: FRAME, columns=COLUMNS),
    "parquet": Kind(parquet_files, columns=COLUMNS),
    "shards of frames": Kind(lambda _: XShards.partition(FRAME, 3), beside_shards, COLUMNS),
    "shards of arrays": Kind(lambda _: XShards.partition({"x": X, "y": Y}, 3), beside_arrays),
    "spark dataframe": Kind(spark_dataframe, in_spark, COLUMNS),
    "ray dataset": Kind(ray_dataset, in_ray, COLUMNS),
}
ANYWHERE = tuple(KINDS)[:-2]
"""Kinds that need neither Spark nor Ray."""
TRAVELLING = ("arrays", "loader", "creator", "parquet", "shards of frames")
"""Kinds that are different things to an engine; the others become one of these before anything leaves the driver."""
