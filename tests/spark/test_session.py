"""What a session needs of the machine, and what it says where that is missing."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from socketserver import BaseRequestHandler, BaseServer

import pytest

from pairbus.errors import ConfigurationError, UnreachableError
from pairbus.spark import session
from pairbus.spark.java import find_java, parse_java_version
from pairbus.spark.session import _DAEMON, _importing, check_spark_version, let_peer_go
from pairbus.spark.worker_daemon import leave_archives
from tests.processes import killed_at_end


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_421"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("no such thing", None),
    ],
)
def test_versions_of_java(text: str, version: int | None) -> None:
    assert parse_java_version(text) == version


def test_java_home_goes_above_the_path(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n", encoding="ascii")
    program.chmod(0o755)
    assert find_java({"JAVA_HOME": str(tmp_path), "PATH": ""}) == program
    assert find_java({"PATH": str(program.parent)}) == program
    assert find_java({"PATH": str(tmp_path)}) is None
    assert find_java({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(program.parent)}) is None


@pytest.mark.parametrize("version", ["3.5.1", "4.0.5", "4.1.4", "4.2.0"])
def test_older_versions_of_spark_are_refused(version: str) -> None:
    with pytest.raises(ConfigurationError, match=r"4\.2\.1"):
        check_spark_version(version)


@pytest.mark.parametrize("version", ["4.2.1", "4.3.0", "4.3.0.dev1", "5.0.0"])
def test_newer_versions_of_spark_are_taken(version: str) -> None:
    check_spark_version(version)


def test_a_server_that_is_too_old_has_to_be_updated() -> None:
    with pytest.raises(ConfigurationError, match=r"server runs 4\.1\.4"):
        check_spark_version("4.1.4", is_server=True)


def test_spark_connect_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pairbus\[connect\]"):
        session.open_session(master="sc://127.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "expected"), [("sc://127.0.0.1:1", UnreachableError), ("sc://[", ConfigurationError)]
)
def test_a_server_that_is_not_there_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, address: str, expected: type[Exception]
) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: object())
    monkeypatch.setenv("SPARK_REMOTE", address)
    with pytest.raises(expected, match="Spark Connect"):
        session.open_session()


def test_modules_are_imported_on_another_thread_which_has_ended_whatever_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "met_beside_java.py"
    module.write_text("import threading\nthread = threading.current_thread()\n", encoding="ascii")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(OSError, match="no Java"), _importing(module.stem):
        raise OSError("no Java")
    thread = sys.modules.pop(module.stem).thread
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


@pytest.mark.parametrize(("error", "is_told"), [(EOFError(), False), (ValueError("a wrong token"), True)])
def test_of_a_java_that_has_died_sparks_own_server_says_nothing(
    capsys: pytest.CaptureFixture[str], error: Exception, is_told: bool
) -> None:
    server = BaseServer(("127.0.0.1", 0), BaseRequestHandler)
    let_peer_go(server)
    try:
        raise error
    except (EOFError, ValueError):
        with socket.socket() as request:
            server.handle_error(request, ("127.0.0.1", 1))
    assert ("Traceback" in capsys.readouterr().err) is is_told


def test_workers_are_forked_from_a_process_that_has_no_threads() -> None:
    """A lock that another thread holds at that moment would never be free in the worker."""
    started = subprocess.Popen(
        [sys.executable, "-m", _DAEMON, "pyspark.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with killed_at_end(started) as process:
        assert process.stdout is not None
        assert len(process.stdout.read(4)) == 4  # its port: from now on it forks
        assert os.listdir(f"/proc/{process.pid}/task") == [str(process.pid)]


def test_archives_of_another_spark_than_the_installed_one_stay_on_the_path(tmp_path: Path) -> None:
    """Such as that of somebody who has Spark from elsewhere, and its modules by PYTHONPATH."""
    (installed,) = [one for one in sys.path if (Path(one) / "pyspark" / "__init__.py").exists()]
    own = f"{installed}/pyspark/python/lib/pyspark.zip"
    other, given = f"{tmp_path}/python/lib/pyspark.zip", f"{tmp_path}/given.zip"
    assert leave_archives([own, given, installed]) == [given, installed]
    assert leave_archives([other, given, installed]) == [other, given, installed]
    assert leave_archives([own, given]) == [own, given]


def test_a_java_that_cannot_start_is_told_with_the_place_of_its_own_words(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    version = 'case "$*" in *-version*) echo "openjdk version \\"17.0.15\\"" >&2; exit 0;; esac'
    program.write_text(f"#!/bin/sh\n{version}\necho no memory >&2\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    (tmp_path / "operations-1767225600123-0a1b.jsonl").write_text("{}\n", encoding="ascii")
    done = subprocess.run(
        [sys.executable, "-m", "pairbus.cli", "cost", "report", "--records", str(tmp_path)],
        env={**os.environ, "JAVA_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    (log,) = tmp_path.glob("pairbus-spark-*.log")
    assert done.returncode == 3
    assert done.stderr.startswith("pairbus: Spark did not start ("), done.stderr
    assert str(log) in done.stderr
    assert "no memory" in log.read_text(encoding="utf-8")
