"""Tables on their way to torch batches, beside what Spark and pyarrow do alone in the same run.

Targets for 10 M rows of 8 float32, two workers on two cores:
first     a Spark DataFrame the first time: >= 10 x the loader of TorchDistributor, >= 0.95 x a bare ``mapInArrow``
later     the same rows from their cache, and Parquet files: >= 0.7 x pyarrow reading those files with no Spark; the
          first epoch beside the first time that a fresh process reads them, the second beside later times
stream    rows of 20 x the buffer are trained; a worker's memory stays within 1.5 x its buffer
"""

import argparse
import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import nn

from benchmarks.measure import load
from seamline.core import registry
from seamline.core.shards import Columns, Reading, put_away
from seamline.core.size import in_bytes
from seamline.engines.local import LocalEngine
from seamline.engines.spark.session import session
from seamline.orca import Estimator
from seamline.orca.callbacks import Callback

NAMES = [f"f{n}" for n in range(8)]
BATCH = 8192
WORKERS = 2
CASES = ("first", "later", "stream")


def frame(spark, rows):
    columns = [f"cast(id % {1009 + n} as float) as {name}" for n, name in enumerate(NAMES)]
    return spark.range(rows).selectExpr(*columns)


def timed(function):
    began = time.perf_counter()
    result = function()
    return time.perf_counter() - began, result


def read_epochs(world, shard, epochs):
    """Seconds that each epoch takes this worker, from rows on disk to tensors."""
    torch.set_num_threads(1)
    durations = []
    for epoch in range(epochs):
        world.all_gather(None)
        seconds, rows = timed(lambda: sum(_as_tensor(batch).shape[0] for batch in shard.batches(epoch)))  # noqa: B023
        durations.append(seconds)
    return durations, rows


def _as_tensor(batch):
    return torch.from_numpy(batch.inputs)


@contextlib.contextmanager
def split(data, memory):
    """The data in shards for the workers, with the seconds that it took."""
    shards = registry.shards(data, Columns(features=[NAMES]))
    try:
        reading = Reading(batch_size=BATCH, shuffle=True, memory_bytes=in_bytes(memory))
        yield timed(lambda: shards.split(WORKERS, reading))
    finally:
        put_away(shards)


def epochs_of(shards, epochs, rows):
    """Rows per second of each epoch, over all workers."""
    answers = LocalEngine().run(lambda world, shard: read_epochs(world, shard, epochs), shards)
    assert sum(read for _, read in answers) == rows
    return [rows / max(times) for times in zip(*(times for times, _ in answers), strict=True)]


def counted(data):
    """A ``mapInArrow`` that does nothing but count."""

    def count(batches):
        yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})

    return sum(row["n"] for row in data.mapInArrow(count, "n bigint").collect())


def torch_distributor_rate(rows=100_000):
    """Rows per second of TorchDistributor's own loader, in as many processes as we have workers."""
    from pyspark.ml.torch.distributor import _get_spark_partition_data_loader
    from pyspark.sql.types import FloatType, StructField, StructType

    table = pa.table({name: torch.rand(rows).numpy() for name in NAMES})
    with tempfile.TemporaryDirectory() as folder:
        data, schema = Path(folder) / "rows", Path(folder) / "schema"
        with pa.OSFile(str(data), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table, max_chunksize=10_000)
        schema.write_text(json.dumps(StructType([StructField(n, FloatType()) for n in NAMES]).jsonValue()))
        os.environ["SPARK_PARTITION_ARROW_DATA_FILE"], os.environ["SPARK_DATAFRAME_SCHEMA_FILE"] = (
            str(data),
            str(schema),
        )

        def read(world, _shard):
            world.all_gather(None)
            return timed(lambda: sum(1 for _ in _get_spark_partition_data_loader(rows, BATCH)))[0]

        seconds = LocalEngine().run(read, [None] * WORKERS)
    return WORKERS * rows / max(seconds)


def first(spark, options):
    data = frame(spark, options.rows)
    counted(data.limit(1000))
    bare, alike, ours, parts = [], [], [], []
    for _ in range(options.repeats):
        bare.append(timed(lambda: counted(data))[0])
        with as_we_ask(spark):
            alike.append(timed(lambda: counted(data))[0])
        with split(data, options.memory) as (writing, shards):
            (rate,) = epochs_of(shards, 1, options.rows)
            ours.append(writing + options.rows / rate)
            parts.append((writing, options.rows / rate))
    peer = torch_distributor_rate()
    rates = [options.rows / min(times) for times in (ours, bare, alike)]
    print(f"first pass: {show(rates[0])}; {parts[ours.index(min(ours))][0]:.2f} s to write, then read")
    judge("x TorchDistributor's loader", rates[0] / peer, 10, f"{show(peer)}")
    judge("x mapInArrow that counts", rates[0] / rates[1], 0.95, show(rates[1]))
    print(f"{rates[0] / rates[2]:9.2f} x the same with the settings that we ask Spark for ({show(rates[2])})")


@contextlib.contextmanager
def as_we_ask(spark):
    """Batches as large as ours, which Spark does not weigh row by row."""
    wanted = {"maxRecordsPerBatch": 65536, "maxBytesPerBatch": 2**31 - 1}
    for name, value in wanted.items():
        spark.conf.set(f"spark.sql.execution.arrow.{name}", str(value))
    yield
    for name in wanted:
        spark.conf.unset(f"spark.sql.execution.arrow.{name}")


def later(spark, options):
    folder = Path(tempfile.mkdtemp())
    try:
        data = frame(spark, options.rows)
        with split(data, options.memory) as (_, shards):
            cached = epochs_of(shards, 1 + options.repeats, options.rows)[1:]
        table = data.toArrow()
        pq.write_table(table, folder / "rows.parquet", row_group_size=2**18)
        del table
        alone, parquet = [], []
        for _ in range(options.repeats):
            (times,) = LocalEngine(pin=False).run(_read_alone, [folder / "rows.parquet"])
            alone.append([options.rows / seconds for seconds in times])
            with split(str(folder), options.memory) as (_, shards):
                parquet.append(epochs_of(shards, 2, options.rows))
        (cold, warm), (start, then) = (map(max, zip(*rates, strict=True)) for rates in (alone, parquet))
        print(f"pyarrow alone reads Parquet at {show(cold)} in a fresh process, then at {show(warm)}")
        judge("x pyarrow alone, from the cache", max(cached) / warm, 0.7, show(max(cached)))
        judge("x pyarrow alone, from Parquet, first epoch", start / cold, 0.7, show(start))
        judge("x pyarrow alone, from Parquet, second epoch", then / warm, 0.7, show(then))
    finally:
        shutil.rmtree(folder)


def _read_alone(_world, path):
    """Seconds that a program with no Spark takes until it has tensors: at first, and the next two times at best."""

    def read():
        table = pq.read_table(path)
        return [torch.from_numpy(column.to_numpy()) for column in table.columns]

    first, *others = (timed(read)[0] for _ in range(3))
    return first, min(others)


class Memory(Callback):
    """How much more memory each worker has held than when it was idle, in bytes."""

    everywhere = True
    steers = False

    def __init__(self, folder):
        self.folder = str(folder)

    def on_fit_begin(self, run):
        self.idle = _resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far

    def on_fit_end(self, run):
        (Path(self.folder) / str(run.rank)).write_text(str(_resident("VmHWM") - self.idle))


def _resident(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def train(data, watch, **options):
    model = nn.Linear(len(NAMES) - 1, 1)
    estimator = Estimator.from_torch(
        model=model, optimizer=torch.optim.SGD(model.parameters(), 1e-9), loss=nn.MSELoss()
    )
    return estimator.fit(data, batch_size=BATCH, workers=WORKERS, callbacks=[watch], verbose=0, **options)


def stream(spark, options):
    """A worker's memory, less what training the same model from a few arrays takes."""
    buffer = in_bytes(options.buffer)
    rows = 20 * buffer // (4 * len(NAMES))
    folder = Path(tempfile.mkdtemp())
    try:
        arrays = torch.rand(10 * BATCH, len(NAMES) - 1), torch.rand(10 * BATCH, 1)
        train(arrays, Memory(folder))
        training = max(int(file.read_text()) for file in folder.iterdir())
        names = {"feature_cols": [NAMES[1:]], "label_cols": [NAMES[:1]], "memory": buffer}
        seconds, estimator = timed(lambda: train(frame(spark, rows), Memory(folder), **names))
        estimator.ledger_.check(rows)
        peaks = [int(file.read_text()) - training for file in folder.iterdir()]
        print(f"stream: {rows / 1e6:.0f} M rows, 20 x a buffer of {options.buffer}, trained in {seconds:.0f} s")
        judge(
            "x its buffer at most held by a worker", max(peaks) / buffer, 1.5, f"{max(peaks) / 2**20:.0f} MB", most=True
        )
    finally:
        shutil.rmtree(folder)


def show(rate):
    return f"{rate / 1e6:.2f} M rows/s"


def judge(what, ratio, target, figure, *, most=False):
    reached = ratio <= target if most else ratio >= target
    print(
        f"{ratio:9.2f} {what} ({figure}); {'<=' if most else '>='} {target} {'reached' if reached else 'MISSED'}",
        flush=True,
    )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory", default="512m", help="a worker's buffer in the first two cases")
    parser.add_argument("--buffer", default="64m", help="a worker's buffer in the last")
    options = parser.parse_args(arguments)
    spark = session({"spark.master": f"local[{WORKERS}]", "spark.driver.memory": "4g"})
    try:
        for case in options.cases:
            {"first": first, "later": later, "stream": stream}[case](spark, options)
    finally:
        spark.stop()
    print(f"best of {options.repeats}; {load()}")


if __name__ == "__main__":
    main()
