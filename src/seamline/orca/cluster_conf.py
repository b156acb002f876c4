"""What Spark is told, as data: options in, ``spark.*`` keys and ``spark-submit`` arguments out.

Nothing is read and nothing is started here, so all of it can be tested without a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

DeployMode = Literal["client", "cluster"]

SUBMITTED = "SEAMLINE_SUBMITTED"
"""The variable that tells a program on the cluster that it has been submitted already."""
_UNPACKED = "environment"
"""The folder that a packed Python environment is unpacked to beside each executor."""
_FLAGS = {
    "spark.app.name": "--name",
    "spark.driver.memory": "--driver-memory",
    "spark.driver.cores": "--driver-cores",
    "spark.executor.memory": "--executor-memory",
    "spark.executor.cores": "--executor-cores",
    "spark.executor.instances": "--num-executors",
    "spark.yarn.queue": "--queue",
    "spark.kerberos.principal": "--principal",
    "spark.kerberos.keytab": "--keytab",
    "spark.submit.pyFiles": "--py-files",
    "spark.files": "--files",
    "spark.archives": "--archives",
    "spark.jars": "--jars",
    "spark.jars.packages": "--packages",
}
"""The keys for which ``spark-submit`` has an argument of its own; some it only completes when they come as one."""


@dataclass(frozen=True, slots=True)
class Submission:
    """An application as Spark wants to be told of it.

    ``conf`` is complete: a session made with it needs nothing else. ``variables`` belong into the environment of the
    process that starts Spark.
    """

    master: str
    deploy_mode: DeployMode
    conf: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """The same for ``spark-submit``, without the program."""
        words = ["--master", self.master, "--deploy-mode", self.deploy_mode]
        for key, value in self.conf.items():
            if key in _FLAGS:
                words += [_FLAGS[key], value]
            elif key not in ("spark.master", "spark.submit.deployMode"):
                words += ["--conf", f"{key}={value}"]
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What is the same on every cluster: sizes, what travels to the executors, and who asks.

    ``num_nodes`` executors have ``cores`` and ``memory`` each. Workers train in Python, outside the JVM whose heap
    ``memory`` is, so ``memory_overhead`` is as much again if you do not say. ``environment`` is an archive made by
    venv-pack or conda-pack; ``python`` is the interpreter of nodes that have one installed.
    """

    num_nodes: int = 1
    cores: int | None = None
    memory: str | None = None
    memory_overhead: str | None = None
    driver_cores: int | None = None
    driver_memory: str | None = None
    driver_host: str | None = None
    driver_port: int | None = None
    name: str = "seamline"
    environment: str | None = None
    python: str | None = None
    packages: Sequence[str] = ()
    jars: Sequence[str] = ()
    py_files: Sequence[str] = ()
    files: Sequence[str] = ()
    archives: Sequence[str] = ()
    principal: str | None = None
    keytab: str | None = None
    file_systems: Sequence[str] = ()
    conf: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark(Application):
    """Spark inside this process, or a standalone cluster where ``master`` is ``spark://host:port``."""

    master: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn(Application):
    """Executors as YARN containers. ``hadoop_conf`` is the folder with core-site.xml and yarn-site.xml."""

    hadoop_conf: str | None = None
    hadoop_user: str | None = None
    queue: str | None = None
    staging_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubernetes(Application):
    """Executors as pods made from ``image``.

    ``upload_path`` is storage that this machine and the pods share. ``program`` is where the driver's pod finds the
    program, such as ``local:///opt/app/train.py`` in the image; if you do not say, this file is uploaded.
    """

    master: str | None = None
    image: str | None = None
    namespace: str | None = None
    service_account: str | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: Sequence[str] = ()
    upload_path: str | None = None
    krb5_conf: str | None = None
    hadoop_config_map: str | None = None
    program: str | None = None


def in_this_process(options: Spark, environment: Mapping[str, str]) -> Submission:
    """Tell Spark to run its tasks beside the driver, in ``cores`` of them at once and with its ``memory``."""
    if options.num_nodes != 1:
        raise ValueError(
            f"num_nodes={options.num_nodes}, but Spark in this process is one node; "
            "init_orca_context('standalone', num_nodes=...) starts several"
        )
    cores = count("cores", options.cores) if options.cores else "*"
    master = options.master or f"local[{cores}]"
    memory = _memory("memory", options.memory)
    own = {"spark.driver.memory": _memory("driver_memory", options.driver_memory) or memory}
    return _submission(master, "client", options, own, {}, leave_out="spark.executor.")


def on_standalone(options: Spark, environment: Mapping[str, str]) -> Submission:
    """Tell Spark to take ``num_nodes`` executors of a standalone cluster; without ``master`` it is still to be made."""
    if options.master is not None and not options.master.startswith("spark://"):
        raise ValueError(f"standalone connects to master='spark://host:port', but got master={options.master!r}")
    own = {"spark.cores.max": str(options.num_nodes * (options.cores or 1))}
    return _submission(options.master or "spark://", "client", options, own, {}, leave_out="spark.executor.memoryO")


def on_yarn(options: Yarn, deploy_mode: DeployMode, environment: Mapping[str, str]) -> Submission:
    """Tell Spark to run on YARN; ``environment`` is that of this process."""
    folder = options.hadoop_conf or environment.get("HADOOP_CONF_DIR") or environment.get("YARN_CONF_DIR")
    if not folder:
        raise ValueError(
            f"yarn-{deploy_mode} needs the folder with core-site.xml and yarn-site.xml; "
            "set HADOOP_CONF_DIR or pass hadoop_conf="
        )
    python = _python(options)
    own = {
        "spark.yarn.queue": options.queue,
        "spark.yarn.stagingDir": options.staging_dir,
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python if deploy_mode == "cluster" else None,
        f"spark.yarn.appMasterEnv.{SUBMITTED}": "1" if deploy_mode == "cluster" else None,
    }
    variables = {"HADOOP_CONF_DIR": folder, "HADOOP_USER_NAME": options.hadoop_user}
    return _submission("yarn", deploy_mode, options, own, variables)


def on_kubernetes(options: Kubernetes, deploy_mode: DeployMode, environment: Mapping[str, str]) -> Submission:
    """Tell Spark to run on Kubernetes; ``environment`` is that of this process."""
    mode = f"k8s-{deploy_mode}"
    if not options.image:
        raise ValueError(f"{mode} needs a container image with Python, Spark and your packages; pass image=")
    master = _kubernetes_master(mode, options.master, environment)
    shipped = (options.program or "the program", options.environment, *options.archives, *options.files)
    here = [path for path in (*shipped, *options.py_files, *options.jars) if path and "://" not in path]
    if deploy_mode == "cluster" and not options.upload_path and here:
        raise ValueError(
            f"{mode} cannot ship {here[0]} from this machine without storage that the pods can read; "
            "pass upload_path=, such as s3a://bucket/uploads"
        )
    python = _python(options)
    account = options.service_account
    own = {
        "spark.kubernetes.container.image": options.image,
        "spark.kubernetes.container.image.pullPolicy": options.image_pull_policy,
        "spark.kubernetes.container.image.pullSecrets": ",".join(options.image_pull_secrets),
        "spark.kubernetes.namespace": options.namespace,
        "spark.kubernetes.authenticate.driver.serviceAccountName": account,
        "spark.kubernetes.authenticate.executor.serviceAccountName": account,
        "spark.kubernetes.file.upload.path": options.upload_path,
        "spark.kubernetes.kerberos.krb5.path": options.krb5_conf,
        "spark.kubernetes.hadoop.configMapName": options.hadoop_config_map,
        "spark.kubernetes.driverEnv.PYSPARK_PYTHON": python if deploy_mode == "cluster" else None,
        f"spark.kubernetes.driverEnv.{SUBMITTED}": "1" if deploy_mode == "cluster" else None,
    }
    return _submission(master, deploy_mode, options, own, {})


def _submission(
    master: str,
    deploy_mode: DeployMode,
    options: Application,
    own: Mapping[str, str | None],
    variables: Mapping[str, str | None],
    leave_out: str = "nothing",
) -> Submission:
    conf = {
        "spark.master": master,
        "spark.submit.deployMode": deploy_mode,
        **{key: value for key, value in _shared_conf(options).items() if not key.startswith(leave_out)},
        **{key: value for key, value in own.items() if value},
        **_user_conf(options.conf),
    }
    if deploy_mode == "client" and options.driver_cores:
        raise ValueError("driver_cores= has no meaning where the driver is this process; leave it out")
    python = _python(options) if deploy_mode == "client" else None
    told = {**variables, "PYSPARK_PYTHON": python}
    return Submission(master, deploy_mode, conf, {name: value for name, value in told.items() if value})


def _shared_conf(options: Application) -> dict[str, str]:
    if bool(options.principal) != bool(options.keytab):
        given, missing = ("principal", "keytab") if options.principal else ("keytab", "principal")
        raise ValueError(f"{given}= was given without {missing}=; Kerberos needs both")
    archives = [*options.archives, *([f"{options.environment}#{_UNPACKED}"] if options.environment else [])]
    memory = _memory("memory", options.memory) or "2g"
    python = _python(options)
    conf = {
        "spark.app.name": options.name,
        "spark.executor.instances": count("num_nodes", options.num_nodes),
        "spark.executor.cores": count("cores", options.cores or 1),
        "spark.executor.memory": memory,
        "spark.executor.memoryOverhead": _memory("memory_overhead", options.memory_overhead) or memory,
        "spark.driver.cores": count("driver_cores", options.driver_cores) if options.driver_cores else None,
        "spark.driver.memory": _memory("driver_memory", options.driver_memory),
        "spark.driver.host": options.driver_host,
        "spark.driver.port": str(options.driver_port) if options.driver_port else None,
        "spark.driver.blockManager.port": str(options.driver_port + 1) if options.driver_port else None,
        "spark.dynamicAllocation.enabled": "false",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.jars.packages": ",".join(options.packages),
        "spark.jars": ",".join(options.jars),
        "spark.submit.pyFiles": ",".join(options.py_files),
        "spark.files": ",".join(options.files),
        "spark.archives": ",".join(archives),
        "spark.executorEnv.PYSPARK_PYTHON": python,
        "spark.kerberos.principal": options.principal,
        "spark.kerberos.keytab": options.keytab,
        "spark.kerberos.access.hadoopFileSystems": ",".join(options.file_systems),
    }
    return {key: value for key, value in conf.items() if value}


def _user_conf(conf: Mapping[str, Any]) -> dict[str, str]:
    for key in conf:
        if not key.startswith("spark."):
            raise ValueError(f"conf has the key {key!r}; Spark reads only keys that begin with 'spark.'")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()}


def _python(options: Application) -> str | None:
    if options.environment and options.python:
        raise ValueError("environment= brings its own Python, so python= has no meaning beside it; give one of them")
    return f"./{_UNPACKED}/bin/python" if options.environment else options.python


def _kubernetes_master(mode: str, master: str | None, environment: Mapping[str, str]) -> str:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT")
    if master is None and host:
        master = f"https://{host}:{port or 443}"
    if master is None:
        raise ValueError(f"{mode} needs the address of the API server; pass master='k8s://https://host:port'")
    return master if master.startswith("k8s://") else f"k8s://{master}"


def count(name: str, value: int) -> str:
    """A number of things as Spark wants it; raises where it cannot be one."""
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, but got {name}={value!r}")
    return str(value)


def _memory(name: str, value: str | None) -> str | None:
    if value is not None and not re.fullmatch(r"[1-9]\d*[kmgt]b?", str(value).lower()):
        raise ValueError(f"{name} is written as Spark writes it, such as '512m' or '8g', but got {name}={value!r}")
    return value
