"""The Java that Spark runs on: found, and new enough."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pairbus.errors import ConfigurationError

#: Spark 4 is compiled for this version.
LEAST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_HOW = (
    f"install Java {LEAST_JAVA} or newer (on Debian: apt-get install default-jre-headless) or set JAVA_HOME"
)
# A Java that does not tell its version by then is broken; a cold one takes about a second.
_DEADLINE = 60.0


def find_java(environment: Mapping[str, str] = os.environ) -> Path | None:
    """The program that Spark would start: that of JAVA_HOME, or else the one on the path."""
    home = environment.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        return program if os.access(program, os.X_OK) else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def check_java() -> int:
    """The version of Java here; a machine without one that Spark can run on is refused."""
    program = find_java()
    if program is None:
        raise ConfigurationError(f"Spark needs Java, and there is none here: {_HOW}")
    told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_DEADLINE)
    version = parse_java_version(told.stderr + told.stdout)
    if version is None or version < LEAST_JAVA:
        what = "one that does not tell its version" if version is None else f"version {version}"
        raise ConfigurationError(f"Spark needs Java {LEAST_JAVA} or newer, and {program} is {what}: {_HOW}")
    return version


def parse_java_version(text: str) -> int | None:
    """`openjdk version "17.0.15"` -> 17; the old counting, `1.8.0`, -> 8."""
    found = _VERSION.search(text)
    if found is None:
        return None
    major, minor = int(found[1]), found[2]
    return int(minor) if major == 1 and minor else major
