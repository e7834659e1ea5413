"""The archive of Spark's classes: used if it is there, made once, and never in anybody's way."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairbus.spark.class_archive import VARIABLE, ClassArchive, _makers, find_archive
from tests.waiting import PATIENCE

from .bus import until

OPTIONS = ["-XX:+UseSerialGC"]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A Spark and a Java that note how they are called; `java` makes an archive unless told to fail."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    yield tmp_path
    while _makers:
        _makers.pop().wait(PATIENCE)


def install_java(home: Path, script: str) -> dict[str, str]:
    program = home / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="ascii")
    program.chmod(0o755)
    os.utime(program, (1, 1))
    return {"PATH": str(program.parent), VARIABLE: str(home / "cache")}


def archive_of(home: Path, environment: dict[str, str]) -> ClassArchive:
    found = find_archive(home / "spark", OPTIONS, environment)
    assert found is not None
    return found


def noted(archive: ClassArchive) -> Path:
    (option,) = archive.java_options()
    name, _, path = option.partition("=")
    assert name == "-XX:DumpLoadedClassList"
    return Path(path)


MAKES = """for one in "$@"; do case "$one" in
-XX:SharedArchiveFile=*) made="${one#*=}";; -XX:SharedClassListFile=*) list="${one#*=}";; esac; done
cp "$list" "$made\""""


def test_the_first_run_notes_classes_and_the_next_one_has_an_archive(home: Path) -> None:
    archive = archive_of(home, install_java(home, MAKES))
    noted(archive).write_text("java/lang/Object\njava/lang/Str", encoding="ascii")
    assert archive.java_options() == [], "somebody is at it"
    archive.make_later("a.jar:b.jar")
    until(lambda: {path.suffix for path in archive.directory.iterdir()} == {".jsa"}, within=60)
    assert archive.file.read_text(encoding="ascii") == "java/lang/Object\n", "whole lines alone"
    assert archive.java_options() == [f"-XX:SharedArchiveFile={archive.file}"]


def test_what_has_failed_is_not_tried_again(home: Path) -> None:
    archive = archive_of(home, install_java(home, "exit 1"))
    noted(archive).write_text("java/lang/Object\n", encoding="ascii")
    archive.make_later("a.jar")
    until(lambda: {path.suffix for path in archive.directory.iterdir()} == {".failed"}, within=60)
    assert archive.java_options() == []


def test_another_java_or_spark_has_another_archive(home: Path) -> None:
    environment = install_java(home, MAKES)
    first = archive_of(home, environment)
    os.utime(home / "bin" / "java", (2, 2))
    second = archive_of(home, environment)
    os.utime(home / "spark" / "jars", (2, 2))
    third = archive_of(home, environment)
    other = find_archive(home / "spark", [], environment)
    assert other is not None
    assert len({first.file, second.file, third.file, other.file}) == 4


def test_old_archives_make_room(home: Path) -> None:
    archive = archive_of(home, install_java(home, MAKES))
    for age in range(3):
        old = archive.directory / f"spark-{age}.jsa"
        old.touch()
        os.utime(old, (100 - age, 100 - age))
    noted(archive).write_text("java/lang/Object\n", encoding="ascii")
    archive.make_later("a.jar")
    until(lambda: archive.is_there, within=60)
    assert {path.name for path in archive.directory.glob("*.jsa")} == {"spark-0.jsa", archive.file.name}


@pytest.mark.parametrize("place", ["off", "relative", "{home}/with a space", "{home}/bin/java/below-a-file"])
def test_without_a_place_there_is_none(home: Path, place: str) -> None:
    environment = {**install_java(home, MAKES), VARIABLE: place.format(home=home)}
    assert find_archive(home / "spark", OPTIONS, environment) is None


def test_nothing_is_made_of_nothing(home: Path) -> None:
    archive = archive_of(home, install_java(home, MAKES))
    archive.make_later("a.jar")
    assert list(archive.directory.iterdir()) == []


SESSION = """
import sys
from pathlib import Path
from pairbus.spark import open_session
from pairbus.spark.session import _started
spark = open_session()
assert spark.sparkContext.parallelize(range(3)).count() == 3
print(".jsa" in Path(f"/proc/{_started[-1].pid}/maps").read_text())
for noted in Path(sys.argv[1]).glob("*.classes"):
    print("sql/execution/python/MapInArrowExec" in noted.read_text())
"""


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("java")
def test_spark_starts_from_the_archive_that_its_first_start_has_made(tmp_path: Path) -> None:
    def run() -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", SESSION, str(tmp_path)],
            env={**os.environ, VARIABLE: str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split()

    assert run() == ["False", "True"], "what this session does not need of SQL is noted for others"
    until(lambda: {path.suffix for path in tmp_path.iterdir()} == {".jsa"}, within=500)
    assert run() == ["True"]
