"""A Spark session for the command line: quick to start, quiet, and bound to this machine unless told to.

Theory of operation
1. Under `spark-submit` the session's settings are the caller's: we take what is there.
2. A local session listens on the loopback only and has no web page. It has more slots than there are cores,
   since pumps wait for the network most of the time, and tasks may fail: `local[8,4]` tries a task four
   times, while `local[8]` would give up with the first failure.
3. The Java process writes to a file, not to our standard error: its first lines, about default log levels and
   modules, cannot be silenced otherwise. If Java does not start, the file is kept and named in the error.
4. Short runs get a serial collector and the quick compiler, which save a third of the start and cost long
   queries half their speed.
5. Python workers run with the interpreter of the driver.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, UnreachableError
from .java import check_java

__all__ = ["DEFAULT_MASTER", "check_spark_version", "open_session"]

DEFAULT_MASTER = "local[8,4]"
LEAST_SPARK = (4, 2, 1)
# How long a cancelled task may take to give its messages back before it is killed.
_KILL_TIMEOUT = "20s"


def check_spark_version(version: str) -> None:
    """Refuse a Spark whose streaming sources lack what the syphon is made of."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if numbers < LEAST_SPARK:
        least = ".".join(map(str, LEAST_SPARK))
        raise ConfigurationError(
            f"Pairbus needs Spark {least} or newer, and this is {version}: pip install 'pairbus[spark]'"
        )


def open_session(
    *,
    master: str | None = None,
    app_name: str = "pairbus",
    is_short: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession. ``settings`` are Spark's own, above ours; ``is_short`` prefers a quick start."""
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigurationError("Spark is not installed: pip install 'pairbus[spark]'") from None
    check_spark_version(pyspark.__version__)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java, with the caller's settings
        return SparkSession.builder.appName(app_name).getOrCreate()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    chosen = {**_base(master or DEFAULT_MASTER, app_name, is_short=is_short), **(settings or {})}
    if chosen["spark.master"].startswith("sc://"):
        return SparkSession.builder.remote(chosen["spark.master"]).appName(app_name).getOrCreate()
    check_java()
    return _start(chosen)


def _base(master: str, app_name: str, *, is_short: bool) -> dict[str, str]:
    log = files("pairbus.spark") / "log4j2.properties"
    java = [f"-Dlog4j2.configurationFile=file:{log}"]
    if is_short:
        java += ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.task.killTimeout": _KILL_TIMEOUT,
        "spark.python.worker.faulthandler.enabled": "false",
        # A second pump on the same queues would only compete with the first.
        "spark.speculation": "false",
        "spark.driver.extraJavaOptions": " ".join(java),
    }
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.memory"] = "1g"
    return settings


def _start(settings: Mapping[str, str]) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with tempfile.NamedTemporaryFile(prefix="pairbus-spark-", suffix=".log", delete=False) as log:
        try:
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": log, "stderr": log}
            )
            context = SparkContext(conf=conf, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise UnreachableError(
                f"Spark did not start ({first}); what Java said is in {log.name}"
            ) from None
        Path(log.name).unlink()
    return SparkSession(context)
