"""`spark-submit` with the wheel, run by a Python that has all that Pairbus needs but not Pairbus."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .bus import Bus, until
from .test_cluster import HOME, LOOPBACK
from .test_command import PAIR, call, receipts_of
from .traffic import assert_whole, letters

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys

from pairbus.cli.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(directory),
        str(ROOT),
    ]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True, timeout=200)
    (built,) = directory.glob("pairbus-*.whl")
    return built


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our packages by a path file. What they say in path files of their own, as an editable install does, is
    not followed.
    """
    home = tmp_path_factory.mktemp("python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=100)
    (packages,) = home.glob("lib/python*/site-packages")
    ours = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "rest.pth").write_text("\n".join(ours), encoding="utf-8")
    found = home / "bin" / "python"
    assert subprocess.run([found, "-c", "import pairbus"], capture_output=True, cwd=home).returncode == 1
    return found


def submit(python: Path, wheel: Path, directory: Path, *arguments: str) -> subprocess.Popen[bytes]:
    script = directory / "run.py"
    script.write_text(SCRIPT, encoding="utf-8")
    command = [str(HOME / "bin" / "spark-submit"), "--master", "local[3,4]", "--py-files", str(wheel)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(python), "SPARK_HOME": str(HOME), "SPARK_LOCAL_IP": LOOPBACK}
    with (directory / "out").open("wb") as out, (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [*command, str(script), *arguments],
            stdout=out,
            stderr=log,
            env=environment,
            cwd=directory,
            start_new_session=True,
        )


def said(directory: Path) -> str:
    return "".join((directory / name).read_text()[-5000:] for name in ("log", "out"))


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_drain_and_a_stream_by_spark_submit(
    java: Path, python: Path, wheel: Path, full_bus: Bus, tmp_path: Path
) -> None:
    first, second = letters(210, prefix="a"), letters(70, prefix="b")
    full_bus.put(first)
    run = ["syphon", "run", *PAIR, "--state", str(tmp_path), "--json"]
    process = submit(python, wheel, tmp_path, *run, "--once")
    try:
        assert process.wait(200) == 0, said(tmp_path)
    finally:
        end(process)
    # With what goes to standard error: spark-submit makes one stream of both.
    out = (tmp_path / "out").read_text()
    told = json.loads(out[out.index("{\n") :])
    assert (told["moved"], told["receipts"]) == (210, 210)
    full_bus.put(second)
    process = submit(python, wheel, tmp_path, *run)
    try:
        until(lambda: full_bus.left() == 0 or process.poll() is not None, within=150)
        assert call("syphon", "stop", *PAIR, "--state", str(tmp_path), "--json")[0] == 0
        assert process.wait(100) == 0, said(tmp_path)
    finally:
        end(process)
    assert full_bus.locked() == 0
    assert_whole(full_bus, [*first, *second], is_once=True)
    assert receipts_of(tmp_path / "records") == {letter.id for letter in [*first, *second]}
