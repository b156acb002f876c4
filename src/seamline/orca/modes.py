"""The ways to open a context, by name: what may be said with each, and how it gets its cluster."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from seamline.core import machine, registry
from seamline.core.cluster import Cluster
from seamline.core.size import in_bytes, in_words
from seamline.orca import cluster_conf
from seamline.orca.cluster_conf import DeployMode, Kubernetes, Spark, Submission, Yarn


@dataclass(frozen=True, slots=True)
class Mode:
    """One name that ``init_orca_context`` takes; ``options`` is the dataclass of what may be said with it."""

    name: str
    options: type[Any]
    open: Callable[[Any], Cluster]

    def start(self, **said: Any) -> Cluster:
        """Open it with what was said, after a look at the names."""
        known = [option.name for option in fields(self.options)]
        for name in said:
            if name not in known:
                raise TypeError(f"{self.name} has no option {name!r}; there are {', '.join(sorted(known))}")
        return self.open(self.options(**said))


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """This machine alone; ``memory`` is what the program expects of it."""

    num_nodes: int = 1
    cores: int | None = None
    memory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ray:
    """The Ray cluster at ``address``, or one node started here; ``options`` go to ``ray.init`` as they are."""

    num_nodes: int = 1
    cores: int | None = None
    memory: str | None = None
    address: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """Sizes were given to spark-submit, so there is nothing left to say."""

    num_nodes: int = 1


def named(cluster_mode: str) -> tuple[Mode, dict[str, Any]]:
    """The mode of this name, and what the name says beyond it: ``local[4]`` is Spark with four cores."""
    if re.fullmatch(r"local\[(\d+|\*)\]", cluster_mode):
        return MODES["spark"], {"master": cluster_mode}
    if cluster_mode not in MODES:
        raise ValueError(f"no cluster mode named {cluster_mode!r}; there are {', '.join(MODES)} and local[n]")
    return MODES[cluster_mode], {}


def _open_local(options: Local) -> Cluster:
    _one_node(options.num_nodes, "this machine", "init_orca_context('standalone', ...) starts several")
    there = machine.memory_bytes()
    if options.memory is not None and in_bytes(options.memory) > there:
        raise ValueError(f"memory={options.memory!r}, but this machine has {in_words(there)}")
    return registry.cluster("local", cores=options.cores)


def _open_spark(options: Spark) -> Cluster:
    return _with_session(cluster_conf.in_this_process(options, machine.environment()), nodes=None)


def _open_standalone(options: Spark) -> Cluster:
    submission = cluster_conf.on_standalone(options, machine.environment())
    if options.master is not None:
        return _with_session(submission, options.num_nodes)
    cores = options.cores or max(1, machine.cores().count // options.num_nodes)
    conf = {key: value for key, value in submission.conf.items() if key not in ("spark.cores.max", "spark.master")}
    conf["spark.executor.cores"] = str(cores)
    memory = options.memory or "1g"
    return registry.cluster("spark-standalone", conf=conf, nodes=options.num_nodes, cores=cores, memory=memory)


def _open_submitted(_: Submitted) -> Cluster:
    return registry.cluster("spark-submitted")


def _open_yarn(deploy_mode: DeployMode, options: Yarn) -> Cluster:
    if _on_the_cluster():
        return registry.cluster("spark-submitted")
    submission = cluster_conf.on_yarn(options, deploy_mode, machine.environment())
    folder = Path(submission.variables["HADOOP_CONF_DIR"])
    if not (folder / "yarn-site.xml").is_file():
        raise ValueError(f"there is no yarn-site.xml in {folder}; let HADOOP_CONF_DIR or hadoop_conf= name its folder")
    return _on_cluster(submission, options.num_nodes, None)


def _open_kubernetes(deploy_mode: DeployMode, options: Kubernetes) -> Cluster:
    if _on_the_cluster():
        return registry.cluster("spark-submitted")
    submission = cluster_conf.on_kubernetes(options, deploy_mode, machine.environment())
    return _on_cluster(submission, options.num_nodes, options.program)


def _open_ray(options: Ray) -> Cluster:
    if options.address is None:
        _one_node(options.num_nodes, "Ray without an address", "pass address= of a cluster that has them")
    return registry.cluster(
        "ray", address=options.address, cores=options.cores, memory=options.memory, options=options.options
    )


def _open_ray_on_spark(options: Spark) -> Cluster:
    return with_ray(_open_standalone(options))


def with_ray(spark: Cluster) -> Cluster:
    """Ray in the executors of a Spark cluster; where that fails nothing is left of either."""
    try:
        return registry.cluster("ray-on-spark", spark=spark)
    except BaseException:
        spark.close()
        raise


def _on_cluster(submission: Submission, nodes: int, program: str | None) -> Cluster:
    if submission.deploy_mode == "client":
        return _with_session(submission, nodes)
    return registry.cluster(
        "spark-program",
        arguments=submission.arguments(),
        variables=submission.variables,
        program=[program or _this_program(), *sys.argv[1:]],
    )


def _with_session(submission: Submission, nodes: int | None) -> Cluster:
    return registry.cluster("spark", conf=submission.conf, variables=submission.variables, nodes=nodes)


def _on_the_cluster() -> bool:
    return cluster_conf.SUBMITTED in machine.environment()


def _this_program() -> str:
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        raise ValueError(
            "a cluster mode submits the file of the program, and an interactive one has none; "
            "use yarn-client or k8s-client, or save it as a file"
        )
    return str(Path(file).absolute())


def _one_node(num_nodes: int, what: str, advice: str) -> None:
    if num_nodes != 1:
        raise ValueError(f"num_nodes={num_nodes}, but {what} is one node; {advice}")


MODES = {
    mode.name: mode
    for mode in (
        Mode("local", Local, _open_local),
        Mode("spark", Spark, _open_spark),
        Mode("standalone", Spark, _open_standalone),
        Mode("yarn-client", Yarn, partial(_open_yarn, "client")),
        Mode("yarn-cluster", Yarn, partial(_open_yarn, "cluster")),
        Mode("k8s-client", Kubernetes, partial(_open_kubernetes, "client")),
        Mode("k8s-cluster", Kubernetes, partial(_open_kubernetes, "cluster")),
        Mode("spark-submit", Submitted, _open_submitted),
        Mode("ray", Ray, _open_ray),
        Mode("ray-on-spark", Spark, _open_ray_on_spark),
    )
}
