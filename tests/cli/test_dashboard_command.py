"""What `pairbus dashboard` tells at its start, and whom it watches."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner

from pairbus.cli.dashboard import TOKEN_ENV, dashboard
from pairbus.dashboard import server
from pairbus.dashboard.server import Serving
from pairbus.dashboard.watched import Watched
from tests.guards.sources import ROOT
from tests.processes import killed_at_end

from .process import COMMAND

TOKEN = "a-token-for-tests-0123456789"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Watched, Serving]]:
    """What the command would serve; it only tells its address."""
    found: list[tuple[Watched, Serving]] = []

    async def serve(watched: Watched, how: Serving, on_address: Callable[[str], None]) -> None:
        found.append((watched, how))
        secret = "" if how.token is None else f"#token={quote(how.token, safe='')}"
        on_address(f"http://{how.host}:{how.port}/{secret}")

    monkeypatch.setattr(server, "serve_until_signal", serve)
    # They are those of the whole process.
    monkeypatch.setattr("pairbus.cli.dashboard.configure_logs", lambda *given: None)
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    return found


def run(*arguments: str) -> str:
    done = CliRunner().invoke(dashboard, [*arguments], standalone_mode=False)
    assert done.exception is None, done.output
    return done.output


def test_a_token_that_was_made_up_is_told(served: list[tuple[Watched, Serving]], tmp_path: Path) -> None:
    told = run("--state", str(tmp_path), "--control")
    ((_, how),) = served
    assert how.token is not None
    assert told == f"dashboard: http://127.0.0.1:8400/#token={how.token}  (Ctrl-C ends it)\n"


def test_a_token_that_was_given_is_in_no_log(
    served: list[tuple[Watched, Serving]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_ENV, f"{TOKEN}\n")  # as a file ends that holds a secret
    file = tmp_path / "address.json"
    told = run("--state", str(tmp_path), "--host", "0.0.0.0", "--address-file", str(file))
    assert served[0][1].token == TOKEN
    assert TOKEN not in told
    assert "http://0.0.0.0:8400/  (Ctrl-C ends it)" in told
    assert f"the token is that of {TOKEN_ENV}" in told
    assert json.loads(file.read_text(encoding="utf-8"))["token"] == TOKEN
    assert file.stat().st_mode & 0o077 == 0


def test_state_directories_that_are_called_alike_are_told_apart(
    served: list[tuple[Watched, Serving]], tmp_path: Path
) -> None:
    shop, store, other = (tmp_path / name for name in ("shop/pairbus", "store/pairbus", "other"))
    run("--state", str(shop), "--state", str(store), "--state", str(other))
    assert [pair.name for pair in served[0][0].pairs] == [str(shop), str(store), "other"]


def test_what_goes_wrong_is_in_its_log(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = ["--history", str(tmp_path / "file" / "history")]
    command = [*COMMAND, "dashboard", "--state", str(tmp_path), "--port", "0", *history]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with killed_at_end(process):
        assert process.stderr is not None
        assert "warning pairbus.dashboard.history: the history of the dash" in process.stderr.readline()


def test_it_needs_nothing_that_its_extra_does_not_bring() -> None:
    """As `pip install 'pairbus[dashboard]'` leaves it: with what a broker needs, and without Spark."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "pairbus[broker]" in project["optional-dependencies"]["dashboard"]
    absent = ["azure.identity", "opentelemetry", "pandas", "prometheus_client", "pyarrow", "pyspark", "rich"]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent})); from pairbus.dashboard import server; "
        "print(server.Serving().host)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50)
    assert (done.stdout, done.stderr) == ("127.0.0.1\n", "")
