"""Where names become objects, and the only place where they do.

Other packages add theirs by an entry point in the group ``seamline.engines``, ``seamline.clusters``,
``seamline.frameworks``, ``seamline.syncs``, ``seamline.runtimes``, ``seamline.inference`` or ``seamline.data``.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, cast

from seamline.core.cluster import Cluster
from seamline.core.engine import Engine
from seamline.core.errors import UnavailableError
from seamline.core.framework import Framework
from seamline.core.runtime import Runtime
from seamline.core.shards import Columns, Shards
from seamline.core.sync import Sync

Kind = Literal["engines", "clusters", "frameworks", "syncs", "runtimes", "inference", "data"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, where its class is, and what has to be installed for it."""

    name: str
    target: str
    needs: str | None = None
    extra: str | None = None

    def load(self) -> Any:
        problem = self.problem()
        if problem:
            raise problem
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)

    def problem(self) -> UnavailableError | None:
        """Why it cannot be used here, without importing anything."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return UnavailableError.needs(self.needs, self.extra or self.needs)
        return None

    def loaded(self) -> bool:
        """Whether the library it needs is in use already, so that an object may be of that library."""
        return self.needs is None or self.needs in sys.modules


_OURS: dict[Kind, tuple[Entry, ...]] = {
    "engines": (
        Entry("inline", "seamline.engines.inline:InlineEngine"),
        Entry("local", "seamline.engines.local:LocalEngine"),
        Entry("ray", "seamline.engines.ray:RayEngine", "ray", "ray"),
        Entry("spark", "seamline.engines.spark:SparkEngine", "pyspark", "spark"),
    ),
    "clusters": (
        Entry("local", "seamline.engines.clusters.local:LocalCluster"),
        Entry("spark", "seamline.engines.clusters.spark:open_session", "pyspark", "spark"),
        Entry("spark-standalone", "seamline.engines.clusters.spark:open_standalone", "pyspark", "spark"),
        Entry("spark-submitted", "seamline.engines.clusters.spark:open_submitted", "pyspark", "spark"),
        Entry("spark-program", "seamline.engines.clusters.spark:submit_program", "pyspark", "spark"),
        Entry("ray", "seamline.engines.clusters.ray:open_ray", "ray", "ray"),
        Entry("ray-on-spark", "seamline.engines.clusters.ray_on_spark:open_ray_on_spark", "ray", "ray"),
    ),
    "frameworks": (Entry("torch", "seamline.frameworks.torch:TorchFramework", "torch", "torch"),),
    "syncs": (Entry("allreduce", "seamline.sync:AllReduce"),),
    "runtimes": (
        Entry("torch", "seamline.runtimes.torch:TorchRuntime", "torch", "torch"),
        Entry("cuda", "seamline.runtimes.cuda:CudaRuntime", "torch", "torch"),
        Entry("openvino", "seamline.runtimes.openvino:OpenVino", "openvino", "inference"),
        Entry("onnxruntime", "seamline.runtimes.onnxruntime:OnnxRuntime", "onnxruntime", "inference"),
    ),
    "inference": (Entry("torch", "seamline.nano.torch:InferenceOptimizer", "torch", "inference"),),
    "data": (
        Entry("spark", "seamline.data.spark:SparkShards", "pyspark", "spark"),
        Entry("ray", "seamline.data.ray:RayShards", "ray", "ray"),
        Entry("polars", "seamline.data.polars:PolarsShards", "polars", "data"),
        Entry("duckdb", "seamline.data.duckdb:DuckShards", "duckdb", "data"),
        Entry("datasets", "seamline.data.hugging_face:HuggingFaceShards", "datasets", "data"),
        Entry("pyarrow", "seamline.data.tables:TableShards", "pyarrow"),
        Entry("xshards", "seamline.data.staged:StagedShards", "seamline.orca.xshards"),
        Entry("torch", "seamline.data.torch:LoaderShards", "torch", "torch"),
        Entry("tf.data", "seamline.data.tf_data:TfDataShards", "tensorflow", "keras"),
        Entry("pandas", "seamline.data.pandas:FrameShards", "pandas"),
        Entry("arrays", "seamline.data.arrays:ArrayShards"),
        Entry("parquet", "seamline.data.parquet:ParquetShards"),
        Entry("creator", "seamline.data.creator:CreatorShards"),
    ),
}


_entry_points = cache(entry_points)
"""Looking through all that is installed takes a moment."""


@cache
def entries(kind: Kind) -> dict[str, Entry]:
    """Everything of a kind by name: ours, and what other packages brought."""
    found = {entry.name: entry for entry in _OURS[kind]}
    for point in _entry_points().select(group=f"seamline.{kind}"):
        found.setdefault(point.name, Entry(point.name, point.value))
    return found


def engine(name: str, **options: Any) -> Engine:
    return cast("Engine", _named("engines", name).load()(**options))


def cluster(name: str, **options: Any) -> Cluster:
    return cast("Cluster", _named("clusters", name).load()(**options))


def framework(name: str) -> Framework:
    return cast("Framework", _named("frameworks", name).load()())


def runtime(name: str) -> Runtime:
    return cast("Runtime", _named("runtimes", name).load()())


def inference(framework: str) -> Any:
    """What finds the fastest way to serve a model of a framework."""
    return _named("inference", framework).load()()


def sync(choice: str | Sync) -> Sync:
    return cast("Sync", _named("syncs", choice).load()()) if isinstance(choice, str) else choice


def shards(data: object, columns: Columns) -> Shards:
    """The adapter that knows how to read ``data``; the first one that accepts it."""
    for adapter in _usable("data"):
        if adapter.accepts(data):
            return cast("Shards", adapter(data, columns))
    raise TypeError(
        f"cannot read data of type {type(data).__name__}; give arrays, (x, y), a DataFrame, the path of Parquet "
        "files, a torch Dataset or DataLoader, or a function that makes one"
    )


def _usable(kind: Kind) -> Iterator[Any]:
    for entry in entries(kind).values():
        if entry.loaded():
            yield entry.load()


def _named(kind: Kind, name: str) -> Entry:
    known = entries(kind)
    if name not in known:
        raise ValueError(f"no {kind.removesuffix('s')} named {name!r}; there are {', '.join(sorted(known))}")
    return known[name]
