"""Seconds to answer for every row of a Spark DataFrame of images: a naive ``pandas_udf``, ``predict``, and ``predict``
with what ``InferenceOptimizer`` found; they take turns in one session."""

import json
import sys
import tempfile
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pyspark.sql.functions import pandas_udf
from torch import nn

from seamline.nano.torch import InferenceOptimizer
from seamline.orca import Estimator, OrcaContext, init_orca_context

SIDE, FILES = 28, 8


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, SIDE, SIDE)),
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)),
    ).eval()


def write(folder, rows):
    generator = np.random.default_rng(0)
    for number in range(FILES):
        ids = np.arange(number * rows // FILES, (number + 1) * rows // FILES)
        images = generator.random((len(ids), SIDE * SIDE), np.float32)
        column = pa.FixedSizeListArray.from_arrays(images.reshape(-1), SIDE * SIDE).cast(pa.list_(pa.float32()))
        pq.write_table(pa.table({"id": ids, "image": column}), f"{folder}/{number}.parquet")
    return torch.from_numpy(images)


def naive(frame, model):
    @pandas_udf("array<float>")
    def predict(image: pd.Series) -> pd.Series:
        with torch.no_grad():
            return pd.Series(list(model(torch.from_numpy(np.stack(image))).numpy()))

    return frame.withColumn("prediction", predict("image"))


def seconds(frame):
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def answers(frame):
    return np.stack(frame.orderBy("id").toArrow()["prediction"].to_numpy())


def main(rows, repeats):
    model = make_model()
    with tempfile.TemporaryDirectory() as folder:
        sample = write(folder, rows)[:512]
        report = InferenceOptimizer().optimize(
            model,
            sample,
            goal="throughput",
            batch_size=256,
            threads=1,
            includes=["openvino*", "onnxruntime*"],
            verbose=0,
        )
        fast, plan = report.best()
        with init_orca_context("local[2]"):
            frame = OrcaContext.get_spark_session().read.parquet(folder)
            estimator = Estimator.from_torch(model=model)
            ways = {
                "naive": lambda frame: naive(frame, model),
                "predict": lambda frame: estimator.predict(frame, feature_cols=["image"]),
                "optimized": lambda frame: estimator.predict(frame, feature_cols=["image"], model=fast),
            }
            expected, exact, near = (answers(way(frame.filter("id < 100"))) for way in ways.values())
            for answered, limit in ((exact, 1e-5), (near, 0.05)):
                distance = np.linalg.norm(answered - expected) / np.linalg.norm(expected)
                assert distance < limit, f"{distance} away from the answers of the naive function"
            frames = {name: way(frame) for name, way in ways.items()}
            times = {name: [] for name in ways}
            for turn in range(repeats):
                for name in ways if turn % 2 == 0 else reversed(ways):
                    times[name].append(seconds(frames[name]))
    print("RESULT " + json.dumps({"seconds": times, "plan": str(plan)}), flush=True)


main(int(sys.argv[1]), int(sys.argv[2]))
