"""What Spark's JVMs say of themselves: little, and no Java stack where Python has an answer."""

from __future__ import annotations

from pathlib import Path

DRIVER = Path(__file__).with_name("log4j2.properties")

_CLUSTER = """
status = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n%ex
logger.deploy.name = org.apache.spark.deploy
logger.deploy.level = info
"""


def option(file: Path) -> str:
    """The JVM option that makes a settings file the one in use."""
    return f"-Dlog4j2.configurationFile={file.as_uri()}"


def for_cluster(folder: Path) -> Path:
    """Settings for a master and its workers: their log is read to learn what they have done."""
    file = folder / "log4j2.properties"
    file.write_text(_CLUSTER)
    return file
