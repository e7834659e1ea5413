"""Runs the tests with each Python that the project promises, and with the lowest dependencies that it allows.

A name on the path may be a shim that leads nowhere: an interpreter counts when it runs and says its version.
PYTHONS names others: `make test-all PYTHONS="python3.12 python3.13"`.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lowest_versions import lowest

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
LOCK = ROOT / "requirements" / "dev.txt"
VERSIONS = ("3.11", "3.12", "3.13")
# Spark does not ask for the lowest of anything but itself, and takes half of the time.
WITHOUT_SPARK = ("--ignore=tests/spark", "--ignore=tests/drill/test_drill.py")
ASK = "import sys; print('%d.%d' % sys.version_info[:2])"
ASK_TIMEOUT = 30.0


def version_of(python: str) -> str | None:
    """What an interpreter says that it is; None where it does not run."""
    try:
        said = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=ASK_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def interpreters() -> dict[str, str]:
    named = os.environ.get("PYTHONS", "").split() or [f"python{version}" for version in VERSIONS]
    found: dict[str, str] = {}
    for python in [*named, sys.executable]:
        version = version_of(python)
        if version is None:
            print(f"test-all: {python} does not run here, and is left out")
        else:
            found.setdefault(version, python)
    return found


def install_locked(pip: list[str]) -> None:
    # The lock names everything, so that nothing is resolved: that took minutes for each interpreter.
    subprocess.run([*pip, "--no-deps", "--require-hashes", "--requirement", str(LOCK)], check=True)
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], check=True)


def install_lowest(pip: list[str]) -> None:
    constraints = BUILD / "lowest.txt"
    constraints.write_text("\n".join(lowest()) + "\n", encoding="utf-8")
    extras = "identity,drill,metrics,tracing,dev"
    subprocess.run([*pip, "--constraint", str(constraints), "--editable", f"{ROOT}[{extras}]"], check=True)


def passes(name: str, python: str, install: Callable[[list[str]], None], *arguments: str) -> bool:
    """Whether the tests pass in an environment of their own."""
    print(f"test-all: {name}", flush=True)
    environment = BUILD / name
    subprocess.run([python, "-m", "venv", "--clear", str(environment)], check=True)
    own = str(environment / "bin" / "python")
    install([own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
    workers = os.environ.get("WORKERS") or "6"
    return subprocess.run([own, "-m", "pytest", "-q", "-n", workers, *arguments], cwd=ROOT).returncode == 0


def main() -> int:
    BUILD.mkdir(exist_ok=True)
    found = interpreters()
    verdicts = {
        f"python{version}": passes(f"python{version}", python, install_locked)
        for version, python in sorted(found.items())
    }
    oldest = found[min(found, key=lambda version: tuple(map(int, version.split("."))))]
    verdicts["lowest"] = passes("lowest", oldest, install_lowest, *WITHOUT_SPARK)
    for name, good in verdicts.items():
        print(f"test-all: {name} {'passed' if good else 'FAILED'}")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
