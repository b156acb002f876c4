"""YARN and Kubernetes as data: every key in a golden file, read back by Spark's own ``spark-submit``.

``python -m tests.orca.test_cluster_conf`` writes the golden files anew; read the difference before you keep it.
"""

import json
import os
import re
from pathlib import Path

import pytest

from seamline.orca.cluster_conf import Kubernetes, Spark, Yarn, in_this_process, on_kubernetes, on_standalone, on_yarn

GOLDEN = Path(__file__).parent / "golden"
IN_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
SUBMISSIONS = {
    "yarn_client_smallest": lambda: on_yarn(Yarn(), "client", {"HADOOP_CONF_DIR": "/etc/hadoop/conf"}),
    "yarn_client_environment": lambda: on_yarn(
        Yarn(
            num_nodes=4,
            cores=8,
            memory="16g",
            memory_overhead="24g",
            driver_memory="4g",
            name="ratings",
            hadoop_conf="/opt/hadoop/conf",
            hadoop_user="ann",
            queue="research",
            staging_dir="hdfs:///user/ann/staging",
            environment="env.tar.gz",
            py_files=["models.py", "readers.zip"],
            files=["labels.json"],
            archives=["vocabulary.zip#words"],
            jars=["connector.jar"],
            conf={"spark.sql.shuffle.partitions": 64, "spark.speculation": False},
        ),
        "client",
        {"HADOOP_CONF_DIR": "/etc/hadoop/conf"},
    ),
    "yarn_client_kerberos": lambda: on_yarn(
        Yarn(
            principal="ann@EXAMPLE.ORG",
            keytab="/home/ann/ann.keytab",
            file_systems=["hdfs://one:8020", "hdfs://two:8020"],
            packages=["org.apache.spark:spark-avro_2.13:4.0.0"],
        ),
        "client",
        {"YARN_CONF_DIR": "/etc/yarn/conf"},
    ),
    "yarn_cluster": lambda: on_yarn(
        Yarn(
            num_nodes=2,
            cores=4,
            memory="8g",
            driver_cores=2,
            driver_memory="4g",
            environment="env.tar.gz",
            queue="research",
        ),
        "cluster",
        {"HADOOP_CONF_DIR": "/etc/hadoop/conf"},
    ),
    "k8s_client_smallest": lambda: on_kubernetes(Kubernetes(image="ann/seamline:1"), "client", IN_POD),
    "k8s_client_reachable_driver": lambda: on_kubernetes(
        Kubernetes(
            master="k8s://https://kube:6443",
            image="registry:5000/seamline:1",
            num_nodes=3,
            cores=4,
            memory="4g",
            namespace="research",
            service_account="spark",
            image_pull_policy="Always",
            image_pull_secrets=["registry", "mirror"],
            python="/opt/venv/bin/python",
            driver_host="driver.research.svc",
            driver_port=7078,
        ),
        "client",
        {},
    ),
    "k8s_cluster": lambda: on_kubernetes(
        Kubernetes(
            master="https://kube:6443",
            image="ann/seamline:1",
            num_nodes=2,
            namespace="research",
            service_account="spark",
            environment="env.tar.gz",
            upload_path="s3a://bucket/uploads",
            krb5_conf="/etc/krb5.conf",
            hadoop_config_map="hadoop",
            conf={"spark.kubernetes.node.selector.pool": "cpu"},
        ),
        "cluster",
        {},
    ),
}
NEEDS_THE_NETWORK = {"yarn_client_kerberos"}
"""Spark would log in and download packages while it prepares these; their arguments are parsed all the same."""


def as_data(submission):
    return {
        "conf": dict(submission.conf),
        "variables": dict(submission.variables),
        "arguments": submission.arguments(),
    }


@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_key_and_argument_is_the_golden_one(name):
    assert as_data(SUBMISSIONS[name]()) == json.loads((GOLDEN / f"{name}.json").read_text())


def test_there_is_no_golden_file_without_a_submission():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(SUBMISSIONS)


# Spark's own reading of it


@pytest.fixture(scope="module")
def spark_submit():
    """Spark's parser of arguments, and what it would run, in a JVM of its own."""
    from pyspark.java_gateway import launch_gateway

    from seamline.engines.spark.java import java_home

    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(java_home())
    gateway = launch_gateway()
    if before is None:
        del os.environ["JAVA_HOME"]
    else:
        os.environ["JAVA_HOME"] = before
    yield SparkSubmit(gateway.jvm)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=20)


class SparkSubmit:
    """``org.apache.spark.deploy.SparkSubmit`` without the last step, which would start the application."""

    def __init__(self, jvm):
        self._jvm = jvm

    def parse(self, submission, program):
        python = self._jvm.org.apache.spark.api.python.PythonUtils
        variables = self._jvm.java.util.HashMap()
        for name, value in submission.variables.items():
            variables.put(name, value)
        words = [*submission.arguments(), program, "--epochs", "3"]
        return self._jvm.org.apache.spark.deploy.SparkSubmitArguments(python.toSeq(words), python.toScalaMap(variables))

    def prepare(self, arguments):
        """The class that would be started, and the configuration that it would get."""
        nothing = self._jvm.scala.Option.apply(None)
        prepared = self._jvm.org.apache.spark.deploy.SparkSubmit().prepareSubmitEnvironment(arguments, nothing)
        return prepared._4(), {pair._1(): pair._2() for pair in prepared._3().getAll()}


FIELDS = {
    "spark.master": "master",
    "spark.submit.deployMode": "deployMode",
    "spark.app.name": "name",
    "spark.driver.memory": "driverMemory",
    "spark.driver.cores": "driverCores",
    "spark.executor.memory": "executorMemory",
    "spark.executor.cores": "executorCores",
    "spark.executor.instances": "numExecutors",
    "spark.yarn.queue": "queue",
    "spark.kerberos.principal": "principal",
    "spark.kerberos.keytab": "keytab",
    "spark.jars.packages": "packages",
}
PATHS = {
    "spark.submit.pyFiles": "pyFiles",
    "spark.files": "files",
    "spark.archives": "archives",
    "spark.jars": "jars",
}
MAIN_CLASS = {
    ("yarn", "client"): "org.apache.spark.deploy.PythonRunner",
    ("yarn", "cluster"): "org.apache.spark.deploy.yarn.YarnClusterApplication",
    ("k8s:", "client"): "org.apache.spark.deploy.PythonRunner",
    ("k8s:", "cluster"): "org.apache.spark.deploy.k8s.submit.KubernetesClientApplication",
}


def resolved(paths, folder):
    """Paths as Spark completes them: those of this machine with their folder."""
    return ",".join(path if "://" in path else f"file:{folder}/{path}" for path in paths.split(","))


def places(urls):
    """Spark writes a file of this machine as file:/x, file:///x or /x."""
    return [re.sub("^file:/+", "/", url) for url in urls]


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "train.py"
    path.touch()
    return str(path)


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("name", SUBMISSIONS)
def test_spark_submit_reads_the_arguments_as_they_are_meant(name, spark_submit, program):
    submission = SUBMISSIONS[name]()
    parsed = spark_submit.parse(submission, program)
    for key, field in FIELDS.items():
        assert getattr(parsed, field)() == submission.conf.get(key), key
    for key, field in PATHS.items():
        expected = resolved(submission.conf[key], Path.cwd()) if key in submission.conf else None
        assert getattr(parsed, field)() == expected, key
    assert parsed.primaryResource() == f"file:{program}"
    assert parsed.childArgs().mkString(" ") == "--epochs 3"


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
@pytest.mark.parametrize("name", [name for name in SUBMISSIONS if name not in NEEDS_THE_NETWORK])
def test_what_spark_submit_would_start_has_every_key(name, spark_submit, program):
    submission = SUBMISSIONS[name]()
    main_class, conf = spark_submit.prepare(spark_submit.parse(submission, program))
    assert main_class == MAIN_CLASS[submission.master[:4], submission.deploy_mode]
    for key, value in submission.conf.items():
        if key in PATHS:
            moved = key.replace("spark.", "spark.yarn.dist.", 1) if submission.master == "yarn" else key
            held = f"{conf.get(moved, '')},{conf.get(key, '')}".split(",")
            assert set(places(resolved(value, Path.cwd()).split(","))) <= set(places(held)), key
        else:
            assert conf[key] == value, key


# What is missing or wrong


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_yarn_without_a_hadoop_folder_is_one_sentence(mode):
    with pytest.raises(ValueError, match=f"yarn-{mode} needs .*; set HADOOP_CONF_DIR or pass hadoop_conf="):
        on_yarn(Yarn(), mode, {})


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_kubernetes_without_an_image_is_one_sentence(mode):
    with pytest.raises(ValueError, match=f"k8s-{mode} needs a container image .*; pass image="):
        on_kubernetes(Kubernetes(), mode, IN_POD)


def test_kubernetes_outside_a_pod_needs_the_address_of_the_api_server():
    with pytest.raises(ValueError, match="pass master='k8s://https://host:port'"):
        on_kubernetes(Kubernetes(image="i"), "client", {})


@pytest.mark.parametrize(
    ("options", "what"), [({}, "the program"), ({"program": "local:///train.py", "files": ["a.json"]}, "a.json")]
)
def test_files_of_this_machine_reach_pods_only_through_shared_storage(options, what):
    with pytest.raises(ValueError, match=f"cannot ship {what} .* pass upload_path="):
        on_kubernetes(Kubernetes(image="i", **options), "cluster", IN_POD)
    stored = Kubernetes(image="i", upload_path="s3a://bucket/uploads", **options)
    assert on_kubernetes(stored, "cluster", IN_POD).deploy_mode == "cluster"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"principal": "ann"}, "principal= was given without keytab="),
        ({"keytab": "ann.keytab"}, "keytab= was given without principal="),
        ({"memory": "8 GB"}, "such as '512m' or '8g', but got memory='8 GB'"),
        ({"memory": 8}, "but got memory=8"),
        ({"driver_memory": "lots"}, "driver_memory"),
        ({"num_nodes": 0}, "num_nodes=0"),
        ({"cores": -1}, "cores=-1"),
        ({"driver_cores": 2}, "driver_cores= has no meaning where the driver is this process"),
        ({"conf": {"executor.memory": "1g"}}, "'executor.memory'; Spark reads only keys that begin with 'spark.'"),
        ({"environment": "e.tar.gz", "python": "/usr/bin/python3"}, "give one of them"),
    ],
)
def test_a_wrong_option_is_named_with_its_value(options, message):
    with pytest.raises(ValueError, match=message):
        on_yarn(Yarn(**options), "client", {"HADOOP_CONF_DIR": "/etc/hadoop/conf"})


def test_the_users_own_keys_have_the_last_word():
    options = Yarn(cores=2, conf={"spark.executor.cores": 5})
    assert on_yarn(options, "client", {"HADOOP_CONF_DIR": "/c"}).conf["spark.executor.cores"] == "5"


def test_spark_in_this_process_has_no_executors_to_speak_of():
    conf = in_this_process(Spark(cores=3, memory="4g", conf={"spark.x": True}), {}).conf
    assert conf["spark.master"] == "local[3]"
    assert conf["spark.driver.memory"] == "4g"
    assert conf["spark.x"] == "true"
    assert not [key for key in conf if key.startswith("spark.executor.")]
    assert in_this_process(Spark(), {}).conf["spark.master"] == "local[*]"


def test_a_standalone_cluster_is_asked_for_as_many_cores_as_all_nodes_have():
    conf = on_standalone(Spark(master="spark://host:7077", num_nodes=3, cores=4, memory="8g"), {}).conf
    assert conf["spark.cores.max"] == "12"
    assert conf["spark.executor.cores"] == "4"
    assert conf["spark.executor.memory"] == "8g"
    assert "spark.executor.memoryOverhead" not in conf


if __name__ == "__main__":
    for name, make in SUBMISSIONS.items():
        (GOLDEN / f"{name}.json").write_text(json.dumps(as_data(make()), indent=2) + "\n")
