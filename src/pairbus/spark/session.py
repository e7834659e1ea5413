"""A Spark session for the command line: quick to start, quiet, and bound to this machine unless told to.

Theory of operation
1. Under `spark-submit` the session's settings are the caller's: we take what is there. If we came with
   `--py-files` as a wheel, Spark has put that on the path of the driver but not of the workers, since it
   knows archives by their ending. So we hand them the wheel under a name that it knows. The process of a
   streaming source, on the driver's machine, finds no archive that way: it gets ours by PYTHONPATH.
2. A local session listens on the loopback only and has no web page. It has more slots than there are cores,
   since pumps wait for the network most of the time, and tasks may fail: `local[8,4]` tries a task four
   times, while `local[8]` would give up with the first failure.
3. The Java process writes to a file, not to our standard error: its first lines, about default log levels and
   modules, cannot be silenced otherwise. If Java does not start, the file is kept and named in the error. It
   has a session of its own: what a terminal, `timeout` or systemd sends to our process group is for us to
   obey, and Java ends after us, when its standard input does. Spark would take Ctrl-C for itself, to cancel
   its jobs by a call to Java from inside the handler; the handler that was there stays.
4. Short runs get a serial collector and the quick compiler, which save a third of the start and cost long
   queries half their speed.
5. From the second start on Java maps an archive of Spark's classes: `class_archive` tells how. A Java that
   has made one need not be asked for its version.
6. Java takes seconds to start; modules that are needed after that are imported meanwhile, on another thread.
   Some of Spark's own are among them: its client looks for NumPy in what belongs to its tests, and that
   imports pandas, which takes half a second. And SQL takes Java a second or two: who does without gets the
   context alone.
7. Python workers run with the interpreter of the driver. On this machine, where that has Pairbus for sure,
   they are forked from a process of ours (`worker_daemon`).
8. An address of Spark Connect, `sc://host:port`, is that of a server which is there already. Its settings are
   its own, but for those of the session. Spark's client would try for ten minutes to reach one that is not
   there, so that we look first.
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from socketserver import BaseServer
from typing import Any
from urllib.parse import urlsplit

from pairbus.errors import ConfigurationError, UnreachableError

from .class_archive import find_archive
from .java import check_java

DEFAULT_MASTER = "local[8,4]"
LEAST_SPARK = (4, 2, 1)
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# For a Java that is not there for long. With its first compiler alone Java has 48 MB for what is compiled,
# which a session with many different queries fills up; then it fails. So it has what it has else.
_QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m")
# How long a cancelled task may take to give its messages back before it is killed.
_KILL_TIMEOUT = "20s"
_HOW = "pip install 'pairbus[spark]'"
_CONNECT_PORT = 15002
_CONNECT_DEADLINE = 10.0
_DYING = 2.0
# Rule 7.
_DAEMON = "pairbus.spark.worker_daemon"
# Rule 6.
_IMPORTED = ("pyspark.testing.utils",)
# Those that belong to the session, so that a server takes them from its client.
_OF_SESSION = ("spark.sql.session.timeZone", "spark.sql.shuffle.partitions")


# The Java processes that were started here.
_started: list[subprocess.Popen[bytes]] = []


def java_end() -> str | None:
    """How the Java started last has ended, in words, if it has; one that dies closes its sockets first."""
    if not _started:
        return None
    try:
        code = _started[-1].wait(timeout=_DYING)
    except subprocess.TimeoutExpired:
        return None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"Spark's Java {how}"


def close_session(spark: Any) -> None:
    """Stop a session, also one whose Java has died."""
    from py4j.protocol import Py4JError

    try:
        spark.stop()
    except (Py4JError, OSError):
        if java_end() is None:
            raise


def check_spark_version(version: str, *, is_server: bool = False) -> None:
    """Refuse a Spark whose streaming sources lack what the syphon is made of."""
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
    if numbers < LEAST_SPARK:
        least = ".".join(map(str, LEAST_SPARK))
        found = (
            f"the server runs {version}: it has to be updated" if is_server else f"this is {version}: {_HOW}"
        )
        raise ConfigurationError(f"Pairbus needs Spark {least} or newer, and {found}")


def is_remote(spark: Any) -> bool:
    """Whether a session is a client of Spark Connect, whose driver runs elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def open_session(
    *,
    master: str | None = None,
    app_name: str = "pairbus",
    is_short: bool = True,
    settings: Mapping[str, str] | None = None,
) -> Any:
    """A SparkSession. `settings` are Spark's own, above ours; `is_short` prefers a quick start.

    Without a master it is one of Spark Connect where SPARK_REMOTE says so, and else one of this machine.
    """
    return open_spark(master=master, app_name=app_name, is_short=is_short, settings=settings)


def open_spark(
    *,
    master: str | None,
    app_name: str,
    is_short: bool,
    settings: Mapping[str, str] | None,
    meanwhile: Sequence[str] = (),
    needs_sql: bool = True,
) -> Any:
    """The same; the context alone where that is enough. `meanwhile` are modules that do not import Spark."""
    try:
        import pyspark
        from pyspark.find_spark_home import _find_spark_home
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigurationError(f"Spark is not installed: {_HOW}") from None
    check_spark_version(pyspark.__version__)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started Java, with the caller's settings
        return _share_archive(SparkSession.builder.appName(app_name).getOrCreate())
    place = master or os.environ.get("SPARK_REMOTE") or DEFAULT_MASTER
    chosen = {**_base(place, app_name, is_short=is_short), **(settings or {})}
    if place.startswith("sc://"):
        return _connect(place, {name: chosen[name] for name in (*_OF_SESSION, *(settings or {}))})
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(_QUICK))
    own = (settings or {}).get(_JAVA_OPTIONS) is None
    archive = find_archive(Path(_find_spark_home()), chosen[_JAVA_OPTIONS].split()) if own else None
    if archive is None or not archive.is_there:
        check_java()
    is_noting = archive is not None and archive.is_wanted
    if archive is not None:
        chosen[_JAVA_OPTIONS] += "".join(f" {option}" for option in archive.java_options())
    with _importing(*_IMPORTED, *meanwhile):
        context = _start(chosen)
    if (server := getattr(context, "_accumulatorServer", None)) is not None:
        let_peer_go(server)
    if not needs_sql and not is_noting:
        return context
    session = SparkSession.getActiveSession() or SparkSession(context)
    if archive is not None and is_noting:
        if place.startswith("local"):  # elsewhere it might have to wait for an executor
            session.range(1).mapInArrow(lambda batches: batches, "id long").collect()
        atexit.register(archive.make_later, context._jvm.java.lang.System.getProperty("java.class.path"))
    return session


@contextmanager
def _importing(*modules: str) -> Iterator[None]:
    """Import these on another thread meanwhile, if they are installed."""
    there = [name for name in modules if find_spec(name.partition(".")[0])]
    thread = threading.Thread(target=lambda: [import_module(name) for name in there])
    thread.start()
    try:
        yield
    finally:
        thread.join()


def let_peer_go(server: BaseServer) -> None:
    """Let Spark's server of accumulators say nothing of a Java that has died: we do (`java_end`)."""
    tell = server.handle_error

    def handle_error(request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), EOFError | ConnectionError):
            tell(request, client_address)

    server.handle_error = handle_error  # type: ignore[method-assign]


def _share_archive(session: Any) -> Any:
    archive = Path(str(files("pairbus"))).parent
    if not archive.is_file():  # we are installed
        return session
    context = session.sparkContext
    if archive.suffix == ".whl":
        # Executors fetch it from here for as long as the session lives.
        directory = tempfile.mkdtemp(prefix="pairbus-wheel-")
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        context.addPyFile(shutil.copy(archive, f"{directory}/{archive.stem}.zip"))
    paths = [str(archive), context.environment.get("PYTHONPATH")]
    context.environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    return session


def _connect(url: str, settings: Mapping[str, str]) -> Any:
    if find_spec("grpc") is None:
        raise ConfigurationError("Spark Connect needs more packages: pip install 'pairbus[connect]'")
    from pyspark.sql import SparkSession

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _CONNECT_PORT
        socket.create_connection((host, port), timeout=_CONNECT_DEADLINE).close()
    except ValueError:
        raise ConfigurationError("an address of Spark Connect is like sc://host:15002") from None
    except OSError as error:
        raise UnreachableError(f"there is no Spark Connect server at {host}:{port} ({error})") from None
    builder = SparkSession.builder.remote(url)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    check_spark_version(session.version, is_server=True)
    return session


def _base(master: str, app_name: str, *, is_short: bool) -> dict[str, str]:
    log = files("pairbus.spark") / "log4j2.properties"
    java = [f"-Dlog4j2.configurationFile=file:{log}"]
    if is_short:
        java += _QUICK
    settings = {
        "spark.master": master,
        "spark.app.name": app_name,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.python.task.killTimeout": _KILL_TIMEOUT,
        "spark.python.worker.faulthandler.enabled": "false",
        # A second pump on the same queues would only compete with the first.
        "spark.speculation": "false",
        _JAVA_OPTIONS: " ".join(java),
    }
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.memory"] = "1g"
        settings["spark.ui.enabled"] = "false"
        settings["spark.python.daemon.module"] = _DAEMON
    return settings


def gist(error: BaseException) -> str:
    """What a worker's Python or else Java complains of, below the calls that failed; else the first line."""
    lines = str(error).splitlines() or [type(error).__name__]
    begins = [place for place, line in enumerate(lines, 1) if line.endswith("(most recent call last):")]
    if begins:
        return next((line for line in lines[begins[-1] :] if line and not line[0].isspace()), lines[0])
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


@contextmanager
def _interrupts_kept() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        # Only the main thread may set one, and what is not Python's own cannot be set again.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _start(settings: Mapping[str, str]) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._active_spark_context is not None:
        return SparkContext._active_spark_context
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with tempfile.NamedTemporaryFile(prefix="pairbus-spark-", suffix=".log", delete=False) as log:
        try:
            # In a session of its own, or a signal for our process group would end it before its pumps have.
            gateway = launch_gateway(  # type: ignore[no-untyped-call]
                conf, popen_kwargs={"stdout": log, "stderr": log, "start_new_session": True}
            )
            _started.append(gateway.proc)
            with _interrupts_kept():
                context = SparkContext(conf=conf, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            raise UnreachableError(
                f"Spark did not start ({gist(error)}); what Java said is in {log.name}"
            ) from None
        Path(log.name).unlink()
    return context
