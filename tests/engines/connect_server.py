"""A Spark Connect server in a process of its own, and a client's session in this one."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from seamline.engines.spark.session import pyspark_session, quiet

PROGRAM = """
import json, sys
from seamline.engines.spark.session import session
spark = session(json.loads(sys.argv[1]))
service = getattr(spark.sparkContext._jvm.org.apache.spark.sql.connect.service, "SparkConnectService$")
print(getattr(service, "MODULE$").localPort(), flush=True)
sys.stdin.read()
spark.stop()
"""
MODE = "SPARK_CONNECT_MODE_ENABLED"
"""What pyspark puts into the environment of a client, and leaves there."""


@contextlib.contextmanager
def connect_server(conf):
    """The address of a server that lives as long as this, on the loopback interface alone."""
    ours = {
        **conf,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    environment.pop(MODE, None)
    command = [sys.executable, "-c", PROGRAM, json.dumps(ours)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield f"sc://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.stdin.close()
        server.wait(30)
        server.stdout.close()


@contextlib.contextmanager
def connect_session(address, *, release=True):
    """A client's session; afterwards this process may have one of the other kind again.

    A server that is gone need not be told that the session is over: pyspark would try for many minutes.
    """
    before = os.environ.get(MODE)
    with quiet():
        spark = pyspark_session().builder.remote(address).create()
    spark.release_session_on_close = release
    try:
        yield spark
    finally:
        spark.stop()
        if before is None:
            os.environ.pop(MODE, None)
