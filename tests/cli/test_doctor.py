"""`doctor` on this machine, and on a pair of embedded namespaces."""

import json
import socket
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from pairbus.broker import Broker
from pairbus.cli.doctor import judge_clock
from pairbus.cli.main import main
from pairbus.errors import ConfigurationError
from tests.object_places import azure_uri, credentials, make_azure_container

Look = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    """Run it, and give back its exit code and its lines by what they are about."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAIRBUS_CONFIG", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        code = main(["doctor", "--json", *arguments])
        return code, {line["what"]: line for line in json.loads(capsys.readouterr().out)}

    return run


@pytest.fixture
def paired() -> list[str]:
    """The arguments that name the pair."""
    return ["--primary-env", "PRIMARY", "--secondary-env", "SECONDARY"]


def test_without_a_pair_it_looks_at_the_machine(look: Look) -> None:
    _, found = look()
    assert found["azure-servicebus"]["found"] == version("azure-servicebus")
    assert {"pairbus", "python", "system", "java", "descriptors", "starlette", "uvicorn"} <= found.keys()
    assert "--pair" in found["pair"]["remedy"]


def test_a_pair_that_is_amiss_is_a_line_below_those_of_the_machine(
    look: Look, paired: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks what is wrong is told all that can be told."""
    monkeypatch.delenv("PRIMARY", raising=False)
    code, found = look(*paired)
    assert (code, found["python"]["verdict"]) == (2, "ok")
    assert found["pair"]["verdict"] == "error"
    assert "PRIMARY is not set" in found["pair"]["found"]


def test_both_sides_are_reached_and_their_clocks_compared(
    look: Look, paired: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        monkeypatch.setenv("PRIMARY", broker["contoso"].connection_string)
        monkeypatch.setenv("SECONDARY", broker["contoso-dr"].connection_string)
        _, found = look(*paired)
    for side in ("primary", "secondary"):
        assert found[f"reach {side}"]["verdict"] == "ok"
        assert found[f"clock of {side}"]["verdict"] == "ok"
    assert found["state directory"]["verdict"] == found["records"]["verdict"] == "ok"
    assert broker["contoso"].connection_string not in json.dumps(found)


def test_a_side_that_cannot_be_reached_is_told_with_its_port(
    look: Look, paired: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker({"contoso": 0}) as broker, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        monkeypatch.setenv("PRIMARY", broker["contoso"].connection_string)
        monkeypatch.setenv(
            "SECONDARY",
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=root;SharedAccessKey=c2VjcmV0;"
            "UseDevelopmentEmulator=true;",
        )
        code, found = look(*paired)
    assert (code, found["reach primary"]["verdict"]) == (3, "ok")
    assert (found["reach secondary"]["verdict"], f"port {port}" in found["reach secondary"]["remedy"]) == (
        "error",
        True,
    )
    assert "clock of secondary" not in found
    assert "c2VjcmV0" not in json.dumps(found)


@pytest.mark.parametrize(
    ("ahead", "verdict", "found"),
    [
        (0.9, "ok", "the same as here"),
        (-12.0, "ok", "this machine is 12 s behind"),
        (400.0, "warning", "this machine is 400 s ahead"),
    ],
)
def test_a_clock_that_is_far_off_is_told(ahead: float, verdict: str, found: str) -> None:
    symptom = judge_clock("clock", ahead)
    assert (symptom.verdict, symptom.found, bool(symptom.remedy)) == (verdict, found, verdict == "warning")


def test_what_is_missing_is_told_with_what_brings_it(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(package: str) -> str:
        if package in ("pyspark", "azure-core"):
            raise PackageNotFoundError(package)
        return "1.0"

    def refuse() -> None:
        raise ConfigurationError("Spark needs Java, and there is none here: install Java")

    monkeypatch.setattr("pairbus.cli.doctor.version", pretend)
    monkeypatch.setattr("pairbus.spark.java.check_java", refuse)
    monkeypatch.setattr("pairbus.cli.doctor.resource.getrlimit", lambda _: (256, 4096))
    code, found = look()
    assert code == 1
    assert (found["pyspark"]["verdict"], found["azure-core"]["verdict"]) == ("note", "error")
    assert "pairbus[spark]" in found["pyspark"]["found"]
    assert (found["java"]["verdict"], found["java"]["remedy"]) == ("warning", "install Java")
    assert found["descriptors"]["remedy"] == "raise the limit: ulimit -n 1024"


def test_a_side_that_takes_connections_and_says_nothing_is_told(
    look: Look, paired: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        monkeypatch.setenv("PRIMARY", broker["contoso"].connection_string)
        monkeypatch.setenv("SECONDARY", broker["contoso-dr"].connection_string)
        broker["contoso"].faults.set("silence")
        monkeypatch.setattr("pairbus.cli.doctor._DEADLINE", 2.0)
        code, found = look(*paired)
    assert (code, found["reach primary"]["verdict"]) == (1, "ok")
    assert found["clock of primary"]["verdict"] == "warning"
    assert found["clock of primary"]["found"].endswith(": no answer within 2 s")


def test_a_directory_that_cannot_be_written_to_is_told(
    look: Look, paired: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        monkeypatch.setenv("PRIMARY", broker["contoso"].connection_string)
        monkeypatch.setenv("SECONDARY", broker["contoso-dr"].connection_string)
        code, found = look(*paired)
    assert (code, found["state directory"]["verdict"]) == (1, "error")
    assert "Not a directory" in found["state directory"]["found"]


@pytest.mark.parametrize("content", [None, "no certificate", ""])
def test_a_certificate_that_is_none_is_a_line_of_the_table(
    look: Look, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "issuer.pem").write_text(content, encoding="utf-8")
    (tmp_path / "pairbus.toml").write_text(
        '[pairs.shop]\nprimary_env = "PRIMARY"\nsecondary_env = "SECONDARY"\ncertificate = "issuer.pem"\n',
        encoding="utf-8",
    )
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for name, side in (("PRIMARY", "contoso"), ("SECONDARY", "contoso-dr")):
            string = broker[side].connection_string.replace(";UseDevelopmentEmulator=true", "")
            monkeypatch.setenv(name, string.replace("127.0.0.1", "localhost"))
        code, found = look("--pair", "shop")
    assert (code, found["certificate"]["verdict"]) == (1, "error")
    assert "issuer.pem" in found["certificate"]["found"]
    assert found["reach primary"]["verdict"] == found["reach secondary"]["verdict"] == "ok"


def test_people_read_the_remedies_below_the_table(look: Look, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    told = capsys.readouterr().out
    assert told.splitlines()[0].split() == ["WHAT", "FOUND"]
    assert "pair: name one with --pair or --primary-env" in told


def test_the_place_of_all_records_is_looked_at(
    look: Look, tmp_path: Path, azurite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, credentials():
        monkeypatch.setenv("P", broker["contoso"].connection_string)
        monkeypatch.setenv("S", broker["contoso-dr"].connection_string)
        for uri, verdict in ((make_azure_container(azurite), "ok"), (azure_uri(azurite, "nowhere"), "error")):
            text = f'[pairs.shop]\nprimary_env = "P"\nsecondary_env = "S"\nrecords = "{uri}"\n'
            (tmp_path / "pairbus.toml").write_text(text, encoding="utf-8")
            _, found = look()
            assert found["shared records"]["verdict"] == verdict
    assert "ContainerNotFound" in found["shared records"]["found"]
