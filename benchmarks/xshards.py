"""Spark and Arrow data as XShards of pandas, and rows that move between shards.

Targets: Arrow tables become pandas frames at 1 GB/s per core or more where types need no conversion, not slower than
pyarrow's own ``to_pandas``; ``repartition`` moves at least 10 M rows/s.

What is measured: (1) the conversion alone, of tables as they arrive from Spark, in batches of 10,000 rows; (2) all that
our code does in a Python worker after Spark has handed its bytes over; (3) the whole way, beside a bare ``mapInArrow``
that only counts. Spark's own hand-over bounds that, and shards that are Python objects take it twice: no verdict.
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa

from benchmarks.measure import load
from seamline.engines.spark import shards as tasks
from seamline.orca import OrcaContext, XShards, init_orca_context
from seamline.orca.xshards import storing

BATCH = 10_000


def arrow_table(rows):
    rng = np.random.default_rng(0)
    columns = {f"f{number}": rng.random(rows, np.float32) for number in range(8)}
    return pa.table(columns)


def best(function, repeats):
    """Seconds of the fastest of several runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def conversion(rows, repeats):
    table = pa.Table.from_batches(arrow_table(rows).to_batches(BATCH))
    size = table.nbytes / 1e9
    schema = table.schema.serialize().to_pybytes()
    streams = [batch.column(0)[0].as_py() for batch in tasks.to_streams(iter(table.to_batches()))]

    def in_a_task():
        ((outcome,),) = tasks.read_streams(schema, 0, ((stream,) for stream in streams))
        return storing.as_pandas(0, outcome.value)

    # One thread each: what a core does.
    pa.set_cpu_count(1)
    ours = best(lambda: storing.as_pandas(0, table), repeats)
    theirs = best(table.to_pandas, repeats)
    task = best(in_a_task, repeats)
    print(f"{rows:,} rows x 8 float32, {size * 1000:.0f} MB of Arrow data, one thread")
    print(f"  (1) Arrow -> pandas      {size / ours:6.2f} GB/s   >= 1 {word(size / ours >= 1)}")
    print(f"      pyarrow's to_pandas  {size / theirs:6.2f} GB/s   x {theirs / ours:.2f} {word(ours <= 1.1 * theirs)}")
    print(f"  (2) all of a task's work {size / task:6.2f} GB/s   >= 1 {word(size / task >= 1)}", flush=True)


def moving(rows, repeats):
    frame = arrow_table(rows).to_pandas()
    shards = XShards.partition(frame, 4)
    even = best(lambda: shards.repartition(3).transform_shard(len).collect(), repeats)
    print(f"  repartition, one process {rows / even / 1e6:6.1f} M rows/s  >= 10 {word(rows / even >= 1e7)}")
    keys = pd.DataFrame({"key": np.arange(rows) % 1000, "value": frame["f0"].astype(np.float64)})
    for name, ours, theirs in (
        ("group_by", lambda s: s.group_by("key", {"value": "mean"}), lambda f: f.groupby("key").agg({"value": "mean"})),
        ("sort_values", lambda s: s.sort_values("value"), lambda f: f.sort_values("value", kind="stable")),
    ):
        parts = XShards.partition(keys, 4)
        took = best(lambda ours=ours, parts=parts: ours(parts).collect(), repeats)
        alone = best(lambda theirs=theirs: theirs(keys), repeats)
        print(f"  {name:<24} {rows / took / 1e6:6.1f} M rows/s  pandas alone {rows / alone / 1e6:.1f}", flush=True)


def whole_way(rows, repeats):
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    with init_orca_context("local[2]", conf={"spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH)}):
        spark = OrcaContext.get_spark_session()
        columns = ", ".join(f"cast(id * {number + 1} as float) as f{number}" for number in range(8))
        df = spark.range(0, rows, 1, 2).selectExpr(*columns.split(", "))

        def bare():
            assert df.mapInArrow(count_rows, "n long").groupBy().sum("n").collect()[0][0] == rows

        def ours():
            assert len(XShards.from_spark(df)) == rows

        bare(), ours()
        times = [(best(bare, 1), best(ours, 1)) for _ in range(repeats)]
        alone, way = (min(column) for column in zip(*times, strict=True))
        print(f"  (3) bare mapInArrow      {rows / alone / 1e6:6.2f} M rows/s")
        print(f"      from_spark, counted  {rows / way / 1e6:6.2f} M rows/s  {way / alone:.2f} x its time")


def count_rows(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"n": [batch.num_rows]})


def word(reached):
    return "reached" if reached else "MISSED"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    conversion(options.rows, options.repeats)
    moving(options.rows, options.repeats)
    whole_way(options.rows, max(1, options.repeats // 2))
    print(f"best of {options.repeats} runs; {load()}")


if __name__ == "__main__":
    main()
