"""What a session needs of the machine, and what it says where that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairbus.errors import ConfigurationError
from pairbus.spark.java import find_java, parse_java_version
from pairbus.spark.session import check_spark_version


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
