"""The Spark session that an engine works with: the one there is, or a quiet one of our own."""

from __future__ import annotations

import contextlib
import importlib
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from seamline.core import machine
from seamline.core.errors import SeamlineError, UnavailableError
from seamline.engines.spark import jvm, log
from seamline.engines.spark.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_OLDEST = (4, 0)
_CONNECT_PORT = 15002
_CONNECT_PACKAGES = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
_ANSWERS_WITHIN_S = 10.0
_TRIES = 4
"""How often a task may be lost in local mode, as on a cluster; without a number Spark gives up the first time."""


def session(conf: Mapping[str, str] | None = None) -> SparkSession:
    """The active session as it is, or a new one with these settings on top of ours.

    Ours: no web page, errors in one line each, this Python on the executors, and nothing but the loopback interface
    where driver and executors are on one machine.
    """
    return active() or start(conf or {})


def active() -> SparkSession | None:
    """The session of this process, if it has one that works."""
    spark_session = pyspark_session()
    found: SparkSession | None = spark_session.getActiveSession()
    context = getattr(found, "sparkContext", None)  # a client of Spark Connect has none, and is active while it works
    return None if context is not None and context._jsc is None else found


def start(conf: Mapping[str, str]) -> SparkSession:
    """A new session; ``SeamlineError`` in one sentence where Spark cannot start.

    With ``spark.remote``, also from the environment, it is one of the Spark Connect server there.
    """
    server = conf.get("spark.remote") or machine.environment().get("SPARK_REMOTE")
    if server is not None and server.startswith("sc://"):
        return _connected(server, conf)
    settings = {**defaults(conf.get("spark.master")), **conf}
    master = settings.get("spark.master", "")
    if on_this_machine(master):
        for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
            settings[key] = f"{log.option(log.DRIVER)} {conf.get(key, '')}".strip()
    builder = pyspark_session().builder
    folder = jvm.DriverFolder()
    with quiet(), _environment(master), _unseen({**folder.conf, **settings}) as seen:
        for key, value in seen.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Exception as error:
            raise SeamlineError(f"Spark did not start with {master or 'its defaults'}: {_gist(error)}") from error
    folder.hand_over(session.sparkContext._jvm)
    return session


def defaults(master: str | None) -> dict[str, str]:
    """Settings that a session of ours starts with; whoever has submitted the program has chosen its master."""
    settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if master is None and submitted():
        return settings
    settings |= {"spark.master": master or f"local[*,{_TRIES}]", "spark.app.name": "seamline"}
    if on_this_machine(settings["spark.master"]):
        settings |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return settings


def submitted() -> bool:
    """Whether ``spark-submit`` runs this program."""
    return machine.set_by_user("PYSPARK_GATEWAY_PORT")


def on_this_machine(master: str) -> bool:
    """Whether driver and executors share this machine, so that nothing has to be reachable from outside."""
    return master.startswith(("local", f"spark://{LOOPBACK}:"))


def pyspark_session() -> type[SparkSession]:
    """Spark's own class, imported; ``UnavailableError`` where pyspark is missing or too old."""
    try:
        with quiet():
            import pyspark
            from pyspark.sql import SparkSession
    except ImportError as error:
        raise UnavailableError.needs("pyspark", "spark") from error
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _OLDEST:
        raise UnavailableError(
            f"pyspark {pyspark.__version__} is too old, Seamline needs 4.0 or later; "
            'pip install --upgrade "seamline[spark]"'
        )
    return SparkSession


def _need_packages() -> None:
    """Say what is missing; pyspark ends a program without a file of its own in silence."""
    for module, package in _CONNECT_PACKAGES.items():
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise UnavailableError(
                f'Spark Connect needs {package}, which cannot be imported ({error}); pip install "pyspark[connect]"'
            ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without pyspark's warning of every pandas 3: columns go by Arrow, and pandas has no part in it.

    Where warnings are errors, pyspark would take it for a missing pandas, and Spark Connect would not be there.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _connected(server: str, conf: Mapping[str, str]) -> SparkSession:
    """A client's session. The server was started with its settings; only those for queries are ours to make."""
    place = urlsplit(server)
    try:
        with socket.create_connection((place.hostname or LOOPBACK, place.port or _CONNECT_PORT), _ANSWERS_WITHIN_S):
            pass  # else pyspark would go on trying for minutes
    except OSError as error:
        raise SeamlineError(f"no Spark Connect server answers at {server} ({error}); start one there first") from error
    _need_packages()
    builder = pyspark_session().builder.remote(server)
    for key, value in conf.items():
        if key.startswith("spark.sql."):
            builder = builder.config(key, value)
    try:
        with quiet():
            return builder.getOrCreate()
    except Exception as error:
        raise SeamlineError(f"there is no session at {server}: {_gist(error)}") from error


@contextlib.contextmanager
def _environment(master: str) -> Iterator[None]:
    """The variables that Spark reads while it starts, put back afterwards."""
    ours = {"JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    ours |= jvm.launcher_variables()
    if on_this_machine(master):
        ours["SPARK_LOCAL_IP"] = LOOPBACK
    else:  # what the executors call Python is theirs to say
        ours["PYSPARK_PYTHON"] = machine.environment().get("PYSPARK_PYTHON", sys.executable)
    with machine.variables_set(ours):
        yield


@contextlib.contextmanager
def _unseen(settings: dict[str, str]) -> Iterator[dict[str, str]]:
    """The settings to name, with secrets in a file instead where a JVM would have them on its command line."""
    from pyspark import SparkContext

    hidden = {key: value for key, value in settings.items() if key.endswith(".secret")}
    if not hidden or SparkContext._gateway is not None or machine.set_by_user(_ARGUMENTS):
        yield settings
        return
    with tempfile.NamedTemporaryFile("w", prefix="seamline-", suffix=".conf") as file:
        file.write("".join(f"{key} {value}\n" for key, value in hidden.items()))
        file.flush()
        arguments = f"--properties-file {file.name} --load-spark-defaults pyspark-shell"
        with machine.variables_set({_ARGUMENTS: arguments}):
            yield {key: value for key, value in settings.items() if key not in hidden}


def _gist(error: Exception) -> str:
    """The first line that says something, without the Java stack."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", ":", "An error occurred"))]
    java = [line.removeprefix(": ") for line in lines if line.startswith(": ")]
    return (java or told or [type(error).__name__])[0]
